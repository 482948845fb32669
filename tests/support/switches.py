"""Switches for tests, and a dispatcher that works until nothing is left to do."""

from datetime import timedelta
from typing import Any

from django.db.models import F

from triggers.dispatch import batch
from triggers.dispatch.batch import arm_switches, dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event, Source, SwitchTimer
from triggers.sources.edit import create_source
from triggers.switches import fire

TIMES = ("since", "latest_at", "seen_at", "began_at", "due_at", "look_at", "opened_at")

OPENED_OR_CLOSED = """
SELECT source.slug, event.type, event.data->>'episode' AS episode
FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
WHERE event.type LIKE 'absence.%%' ORDER BY event.seq
"""


def make_switch(slug: str = "orders", *, kind: str = "absence", **settings: Any) -> Source:
    """No visitor.came within an hour, unless the settings say otherwise."""
    defaults = {"types": "visitor.came"} if kind == "absence" else {}
    source = create_source(slug, kind=kind, settings={**defaults, **settings}, by="test")
    arm_switches(Rules())
    return source


def work() -> None:
    """Dispatch what came, then open what is due, until nothing is left."""
    rules = Rules()
    arm_switches(rules)
    while dispatch(rules).dispatched or open_due(rules):
        pass


def open_due(rules: Rules | None = None) -> int:
    rules = rules or Rules()
    rules.current()
    due = fire.due(rules.switches, batch.MOST)
    return batch.open_absences(due, rules).dispatched if due else 0


def later(length: timedelta) -> None:
    """Let so much time pass for all timers."""
    SwitchTimer.objects.update(**{name: F(name) - length for name in TIMES})


def timer(slug: str = "orders", key: str = "") -> SwitchTimer:
    return SwitchTimer.objects.get(source__slug=slug, key=key)


def data_of(**which: Any) -> dict[str, Any]:
    """The data of the one event."""
    data = Event.objects.get(**which).data
    assert isinstance(data, dict)
    return data


def episodes(slug: str = "orders") -> list[tuple[str, str]]:
    """The episodes of a switch: type and key."""
    return [(event.type, event.subject) for event in Event.objects.filter(source__slug=slug).order_by("seq")]
