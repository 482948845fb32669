"""The words and colours of a schedule on all pages."""

from datetime import datetime, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from django.utils.safestring import SafeString
from django.utils.text import capfirst

from config.console.parts.links import link, page
from config.console.parts.moments import distance
from config.console.parts.sections import Notice
from runs.processes.alive import alive
from triggers.exceptions import RuleError
from triggers.models import Schedule, Skip
from triggers.schedules.clock import zone_of

UTC = ZoneInfo("UTC")

COLOURS = {
    "active": "success",
    "paused": "warning",
    "trigger off": "warning",
    "done": "default",
    "used up": "default",
    "over": "default",
    "cannot fire": "danger",
    "left to another Beat": "default",
}
STATES = {"used_up": "used up", "problem": "cannot fire", "foreign": "left to another Beat"}


def state_of(schedule: Schedule) -> str:
    """The state of a schedule, one of COLOURS."""
    state = STATES.get(schedule.status, schedule.status)
    if state == "active" and schedule.trigger and schedule.trigger.status != "active":
        return "trigger off"
    return state


def wakes(schedule: Schedule) -> SafeString | str:
    """The agent that a schedule wakes, or the task of an ordinary periodic task."""
    if schedule.trigger is None:
        return f"task {schedule.task.task}"
    return link(page("triggers_trigger", schedule.trigger.pk), schedule.trigger.agent)


def zone_of_schedule(schedule: Schedule, otherwise: ZoneInfo = UTC) -> ZoneInfo:
    """The zone of its times: its crontab's, else that of its active hours, else the given one."""
    named = schedule.task.crontab.timezone if schedule.task.crontab else schedule.active_zone
    try:
        return zone_of(str(named)) if named else otherwise
    except RuleError:
        return otherwise


def in_zone(at: datetime, zone: tzinfo) -> str:
    """E.g. “Fri 20 Nov 2026, 09:00”; with seconds if they are not zero, and marked in the second pass of a repeated hour."""
    local = at.astimezone(zone)
    clock = f"{local:%H:%M:%S}" if local.second or local.microsecond else f"{local:%H:%M}"
    return f"{local:%a} {local.day} {local:%b %Y}, {clock}{' (second pass)' if local.fold else ''}"


def notice_of(schedule: Schedule) -> Notice:
    """The schedule's state as a sentence, with the reason if it does not fire."""
    match state_of(schedule):
        case "paused":
            return _paused(schedule)
        case "done":
            return Notice(text="Fired. It is a one-shot.")
        case "used up":
            return Notice(text=f"Finished: it fired {schedule.fires:,} times, its maximum.")
        case "over":
            return Notice(text="Finished: its rule has no further time, or its end has passed.")
        case "cannot fire":
            return Notice(text=f"It cannot fire: {schedule.problem}", level="bad", details=["Edit its rule."])
        case "left to another Beat":
            return Notice(
                text="An ordinary periodic task, which the Beat of its own program is to fire.",
                details=["WAKEFUL_ADOPT_PERIODIC_TASKS=true lets Wakeful's Beat fire such tasks."],
            )
        case "trigger off" if schedule.trigger:
            return _trigger_off(schedule)
    if not alive().filter(kind="beat").exists():
        return Notice(
            text="No beat is alive, so nothing fires.", level="bad", details=["Start `celery -A config beat`."]
        )
    if schedule.next_fire_at is None or schedule.stale:
        return Notice(text="Just edited: beat is computing the next fire.")
    return Notice(text=f"Fires {distance(schedule.due_at or schedule.next_fire_at)}.", level="good")


def _paused(schedule: Schedule) -> Notice:
    when = f" {distance(schedule.paused_at)}" if schedule.paused_at else ""
    who = f" by {schedule.paused_by}" if schedule.paused_by else ""
    text = f"Paused{when}{who}: it does not fire."
    return Notice(text=text, level="warning", details=[schedule.paused_note] if schedule.paused_note else [])


def _trigger_off(schedule: Schedule) -> Notice:
    trigger: Any = schedule.trigger
    what = "are held until the trigger is resumed" if trigger.status == "paused" else "start no run"
    return Notice(text=f"Its trigger {trigger.slug} is {trigger.status}: its ticks {what}.", level="warning")


def stretch_of(skip: Skip, zone: tzinfo) -> str:
    """First and last time, and their count."""
    first = in_zone(skip.first, zone)
    if skip.first == skip.last:
        return first
    count = f"{skip.count:,}" if skip.count is not None else "very many"
    return f"{count} times, {first} to {in_zone(skip.last, zone)}"


def reason_of(skip: Skip) -> str:
    """The reason as text why the nominal times did not fire."""
    text = capfirst(str(skip.get_reason_display()))
    return f"{text}: {skip.detail}" if skip.detail else text
