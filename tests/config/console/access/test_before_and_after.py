"""An edit in the audit log says what it was before and what it is now, and nothing of what stayed the same."""

from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client

from agents.kernel.redaction import know
from config.console.access.audit import details_of
from runs.budgets.caps import create_budget, set_cap
from runs.models import AuditEntry
from runs.notifications.edit import change_recipient
from tests.support.console import list_of, make_source, page_of
from tests.support.notifying import make_recipient
from tests.support.triggers import make_trigger
from triggers.declarations.overrides import override, reset_overrides
from triggers.sources.edit import change_source

pytestmark = pytest.mark.django_db


def last() -> AuditEntry:
    return AuditEntry.objects.order_by("-id")[0]


def entry(**detail: Any) -> AuditEntry:
    return AuditEntry(by="admin:ada", action="change", kind="source", object_id="1", detail=detail)


def test_a_trigger() -> None:
    trigger = make_trigger(policy={"retries": 3, "pause_after": 0})

    override(trigger, {"policy": {"retries": 5, "pause_after": 0}, "key_limit": trigger.key_limit}, by="admin:ada")
    assert details_of(last()) == "policy.retries: 3 → 5"

    trigger.declared, trigger.overrides, trigger.overlap = {"overlap": "allow"}, ["overlap"], "skip"
    reset_overrides(trigger, ["overlap"], by="admin:ada")
    assert details_of(last()) == "fields: overlap, overlap: skip → allow"


def test_a_source_that_is_saved_as_it_was() -> None:
    source = make_source(limits={"per_minute": 60})
    same = {"enabled": True, "limits": {"per_minute": 60}}

    change_source(source, {**same, "enabled": False}, by="admin:ada")
    assert details_of(last()) == "enabled: True → False"

    change_source(source, {**same, "enabled": False}, by="admin:ada")
    assert details_of(last()) == "nothing differs from before"


def test_a_recipient_and_a_cap() -> None:
    change_recipient(make_recipient().pk, by="admin:ada", zone="Europe/Vienna", digest_hour=8, active=True)
    assert details_of(last()) == "address_changed: False, zone: UTC → Europe/Vienna, digest_hour: none → 8"

    budget = create_budget(scope="installation", period="day", measure="usd", cap=None, by="admin:ada")
    set_cap(budget.pk, Decimal(5), by="admin:ada")
    assert details_of(last()) == "cap: none → 5"


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        ({"policy": {"retries": 5, "pause_after": 0}}, "policy: retries 5, pause_after 0"),
        ({"cap": "6", "was": "5"}, "cap: 5 → 6"),
        ({"was": "failed"}, "was: failed"),
        ({}, ""),
        ({"set": {"a": {"b": [1, 2]}}, "was": {"set": {"a": {"b": [1]}, "c": 1}}}, "set.a.b: 1 → 1, 2, set.c: 1 → none"),
        ({"filter": "y" * 300, "was": {"filter": ""}}, f"filter: none → {'y' * 99}…"),
    ],
)  # fmt: skip
def test_entries_of_earlier_versions_and_nested_settings(detail: dict[str, Any], said: str) -> None:
    assert details_of(entry(**detail)) == said


def test_a_secret_that_was_there_before_is_not_shown(admin: Client) -> None:
    know("hunter2-very-secret")
    source = make_source(limits={})
    one = AuditEntry.objects.create(
        by="admin:ada", action="change", kind="source", object_id=str(source.pk),
        detail={"settings": {"url": "x"}, "was": {"settings": {"url": "hunter2-very-secret"}}},
    )  # fmt: skip

    for path in (list_of("runs_auditentry"), page_of("runs_auditentry", one), page_of("triggers_source", source)):
        page = admin.get(path).content.decode()
        assert "settings.url" in page
        assert "hunter2" not in page


def test_objects_have_their_names_and_what_is_gone_has_no_link(admin: Client) -> None:
    recipient, gone = make_recipient(name="pager"), str(uuid4())
    AuditEntry.objects.create(by="a", action="change", kind="recipient", object_id=str(recipient.pk))
    AuditEntry.objects.create(by="a", action="delete", kind="trigger", object_id=gone, detail={"name": "old-one"})
    AuditEntry.objects.create(by="a", action="delete", kind="budget", object_id="12345678901234567890123")

    page = admin.get(list_of("runs_auditentry")).content.decode()

    assert "recipient pager" in page
    assert "trigger old-one" in page
    assert gone not in page
