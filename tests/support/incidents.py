"""Failures and successes for tests of incidents."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db.models import F

from runs.incidents.note import Failed, Succeeded, Thing, note
from runs.models import Incident, Notification

HOUR = timedelta(hours=1)
NO = "ConnectionError: no answer"


def thing(name: str = "greeter", **fields: Any) -> Thing:
    return Thing(**{"kind": Incident.Kind.TRIGGER, "subject": name, "name": name, "agent": name, **fields})


def fail(times: int = 1, error: str = NO, name: str = "greeter", **fields: Any) -> None:
    """So many failed runs of a trigger, each noted by itself."""
    for _ in range(times):
        note([Failed(thing=thing(name, **fields), error=error, run_id=uuid4(), is_covered=True)])


def succeed(name: str = "greeter") -> None:
    note([Succeeded(thing=thing(name))])


def pass_by(span: timedelta) -> None:
    """Everything that happened to incidents is older by this span."""
    moved: dict[str, Any] = {
        name: F(name) - span
        for name in ("first_at", "last_at", "opened_at", "closed_at", "told_at", "tell_at", "muted_until")
    }
    Incident.objects.update(**moved)


def notification_texts() -> list[str]:
    """The texts of notifications, in order."""
    return list(Notification.objects.order_by("id").values_list("text", flat=True))
