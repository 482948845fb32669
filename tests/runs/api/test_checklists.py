"""Checklists over HTTP."""

from datetime import timedelta
from typing import Any

import pytest

from agents.checklists.run_checklist import read_checklist
from agents.models import Checklist
from runs.actions.checklists import ItemEdit, create_checklist
from runs.models import AuditEntry
from tests.support.api import Api

pytestmark = pytest.mark.django_db


@pytest.fixture
def checklist() -> Checklist:
    items = [ItemEdit(text="failed runs"), ItemEdit(text="backups", every=timedelta(hours=1))]
    return create_checklist("ops", items=items, by="ada")


def items_of(body: dict[str, Any]) -> list[tuple[str, float | None, bool]]:
    return [(item["text"], item["every"], item["paused"]) for item in body["items"]]


def test_a_checklist_is_made_listed_edited_and_silenced() -> None:
    api = Api()

    made = api.post("checklists/", {"agent": "ops", "items": [{"text": "backups", "every": "1h"}]})
    assert (made.status, made.body["revision"]) == (201, 1)
    [listed] = api.get("checklists/").body["results"]
    assert (listed["id"], items_of(listed)) == (made.body["id"], [("backups", 3600, False)])
    [item] = listed["items"]
    edited = api.patch(
        f"checklists/{listed['id']}/",
        {
            "revision": 1,
            "items": [{"text": "disk"}, {"id": item["id"], "text": "backups", "every": 60, "paused": True}],
        },
    )
    assert (edited.status, items_of(edited.body)) == (200, [("disk", None, False), ("backups", 60, True)])
    silenced = api.patch(f"checklists/{listed['id']}/", {"silenced_until": "2999-01-01T00:00:00Z"})
    assert (silenced.body["silenced_until"], read_checklist("ops", "").due) == ("2999-01-01T00:00:00Z", ())
    api.patch(f"checklists/{listed['id']}/", {"silenced_until": None})
    assert [one.text for one in read_checklist("ops", "").due] == ["disk"]
    actions = list(AuditEntry.objects.filter(kind="checklist").order_by("id").values_list("action", flat=True))
    assert actions == ["create", "edit", "silence", "unsilence"]


def test_revisions_show_who_changed_what(checklist: Checklist) -> None:
    api = Api()
    api.patch(f"checklists/{checklist.pk}/", {"items": [{"text": "disk"}]})

    newest, first = api.get(f"checklists/{checklist.pk}/revisions/").body["results"]

    assert (newest["number"], first["number"], first["by"]) == (2, 1, "ada")
    assert [one["what"] for one in newest["changes"]] == ["added", "removed", "removed"]
    assert [one["after"] for one in first["changes"]] == ["failed runs (each run)", "backups (every 1 h)"]


def test_an_edit_of_an_older_revision_is_refused(checklist: Checklist) -> None:
    api = Api()
    api.patch(f"checklists/{checklist.pk}/", {"items": [{"text": "disk"}]})

    refused = api.patch(f"checklists/{checklist.pk}/", {"items": [], "revision": 1})

    assert (refused.status, refused.body["status"]) == (409, "edited")
    assert checklist.items.count() == 1


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ({"items": [{"text": ""}]}, "items"),
        ({"items": [{"text": "a", "every": "often"}]}, "items"),
        ({"items": [{"text": "a", "every": True}]}, "items"),
        ({"items": [{"text": "a", "every": 0}]}, "items"),
        ({"items": [{"text": "a", "id": 0}]}, "items"),
        ({"items": [{"text": "a", "note": "b"}]}, "items"),
        ({"silenced_until": "tomorrow"}, "silenced_until"),
        ({"name": "x"}, "name"),
    ],
)
def test_an_invalid_checklist_is_refused_with_its_field(checklist: Checklist, body: dict[str, Any], fault: str) -> None:
    refused = Api().patch(f"checklists/{checklist.pk}/", body)

    assert (refused.status, list(refused.body)) == (400, [fault])
    assert checklist.items.count() == 2


def test_a_checklist_is_edited_only_with_the_permission(checklist: Checklist) -> None:
    viewer = Api(["agents.view_checklist"])

    assert viewer.get(f"checklists/{checklist.pk}/").status == 200
    assert viewer.get(f"checklists/{checklist.pk}/revisions/").status == 200
    assert viewer.patch(f"checklists/{checklist.pk}/", {"items": []}).status == 403
    assert viewer.post("checklists/", {"agent": "x", "items": []}).status == 403
