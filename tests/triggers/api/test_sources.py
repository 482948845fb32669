"""The limits of a source over HTTP, as the console shows and sets them."""

from typing import Any

import pytest

from runs.models.audit import AuditEntry
from tests.support.api import Api
from triggers.models import Source
from triggers.sources.edit import create_source

pytestmark = pytest.mark.django_db
NONE = {"networks": "", "max_body": 0, "per_minute": 0, "equal_bodies": "new"}


@pytest.fixture
def source() -> Source:
    return create_source("shop", kind="bearer", settings={}, by="test")


def test_limits_are_shown_and_set_one_by_one(source: Source) -> None:
    api = Api()
    assert api.get("sources/shop/").body["limits"] == NONE
    assert api.get("sources/cli/").body["limits"] is None  # built in

    changed = api.patch("sources/shop/", {"limits": {"per_minute": 60, "networks": "192.0.2.0/24"}})
    assert (changed.status, changed.body["limits"]) == (200, {**NONE, "per_minute": 60, "networks": "192.0.2.0/24"})
    api.patch("sources/shop/", {"limits": {"networks": ""}, "enabled": False})

    source.refresh_from_db()
    assert (source.limits, source.enabled) == ({"per_minute": 60}, False)
    assert AuditEntry.objects.filter(action="change", object_id=str(source.pk)).count() == 2


@pytest.mark.parametrize(
    ("slug", "change", "field"),
    [
        ("shop", {"limits": {"per_minute": -1}}, "limits.per_minute"),
        ("shop", {"limits": {"networks": "here"}}, "limits.networks"),
        ("shop", {"limits": {"color": 1}}, "limits.color"),
        ("shop", {"limits": 7}, "limits"),
        ("shop", {"kind": "none"}, "kind"),
        ("cli", {"enabled": False}, "kind"),
    ],
)
def test_a_fault_stands_at_its_field(source: Source, slug: str, change: dict[str, Any], field: str) -> None:
    answer = Api().patch(f"sources/{slug}/", change)

    assert (answer.status, list(answer.body)) == (400, [field])
