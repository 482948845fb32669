"""The audit log answers what has changed since a time, by people, and names what they changed."""

from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runs.models import NIL, AuditEntry
from tests.support.triggers import make_trigger

pytestmark = pytest.mark.django_db
LOG = "/admin/runs/auditentry/"


def entry(
    by: str = "admin:ada", action: str = "change", kind: str = "queue", object_id: str = "default", **more: object
) -> None:
    AuditEntry.objects.create(by=by, action=action, kind=kind, object_id=object_id, **more)


def shown(admin: Client, **filters: str) -> str:
    answer = admin.get(LOG, filters)
    assert answer.status_code == 200
    return answer.content.decode()


def test_what_changed_since_a_time_is_shown_alone(admin: Client) -> None:
    entry(object_id="long-ago", at=timezone.now() - timedelta(days=3))
    entry(object_id="of-now")

    moment = (timezone.now() - timedelta(days=2)).isoformat()
    for since in ("1h", "today", "yesterday", moment):
        page = shown(admin, since=since)
        assert "of-now" in page and "long-ago" not in page
    assert "long-ago" in shown(admin, since="7d")
    assert "long-ago" in shown(admin, since="no time")


def test_changes_by_people_are_apart_from_logins_commands_and_maintenance(admin: Client) -> None:
    entry(object_id="by-ada")
    entry(by="token:ci", object_id="by-token")
    entry(action="login", kind="user", object_id="a-login")
    entry(by="cli:deploy", object_id="by-deploy")
    entry(by="cli:deploy", action="prune", object_id="by-prune")
    entry(by=f"run:{NIL}", action="pace", object_id="by-run")

    by = {
        "people": {"by-ada", "by-token"},
        "commands": {"by-deploy"},
        "logins": {"a-login"},
        "rest": {"by-prune", "by-run"},
    }
    for who, theirs in by.items():
        page = shown(admin, done_by=who)
        assert {one for some in by.values() for one in some if one in page} == theirs


def test_triggers_have_their_names_at_the_cost_of_no_further_query(admin: Client) -> None:
    trigger = make_trigger("invoices")
    entry(kind="trigger", object_id=str(trigger.pk), detail={"fields": {"hold": "10s", "step": 0}})
    entry(kind="trigger", object_id="*")
    shown(admin)
    with CaptureQueriesContext(connection) as first:
        page = shown(admin)
    assert "trigger invoices" in page and "hold 10s, step 0" in page and "trigger: several, or all" in page
    for number in range(5):
        entry(kind="trigger", object_id=str(make_trigger(f"t{number}").pk))

    with CaptureQueriesContext(connection) as later:
        shown(admin)

    assert len(later) == len(first)
