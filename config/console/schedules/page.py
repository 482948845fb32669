"""The page of one schedule: its state, next fires, recent fires and skips, policy and edits."""

from contextlib import suppress
from typing import Any

from agents.kernel.durations import in_words
from config.console.access.audit import entries_of
from config.console.parts.links import joined, link, listing, page
from config.console.parts.moments import distance, instant, moment
from config.console.parts.sections import Facts, Section, Table, Text, pretty
from config.console.schedules.backfills.words import backfills_of
from config.console.schedules.recent_fires import recent
from config.console.schedules.words import in_zone, notice_of, wakes, zone_of_schedule
from triggers.exceptions import RuleError
from triggers.models import Revision, Schedule
from triggers.schedules.definition import Definition
from triggers.schedules.plans import plan_of
from triggers.schedules.preview import describe, upcoming
from triggers.schedules.terms.active_hours import ActiveHours

AHEAD = 10  # fires
EDITS = 10


def sections_of(schedule: Schedule) -> list[Section]:
    sections: list[Section] = [notice_of(schedule), _facts(schedule), _next_fires(schedule), *recent(schedule)]
    sections += [_policy(schedule), *backfills_of(schedule), *_edits(schedule), entries_of("schedule", schedule.pk)]
    if schedule.data is not None:
        sections.append(Text(title="Data its events carry", text=pretty(schedule.data), folded=True))
    return sections


def _facts(schedule: Schedule) -> Facts:
    trigger = schedule.trigger
    return Facts(
        rows=[
            ("Fires", describe(schedule)),
            ("Kind", schedule.get_kind_display()),
            ("Wakes", wakes(schedule)),
            ("Trigger", trigger and link(page("triggers_trigger", trigger.pk), trigger.slug)),
            ("Last fire", moment(schedule.fired_at or schedule.last_fire_at)),
            ("Fires so far", f"{schedule.fires:,}"),
            ("Counted from", schedule.anchor_at and moment(schedule.anchor_at)),
            ("Last edit", moment(schedule.edited_at)),
            ("Accounted for until", schedule.accounted_until and moment(schedule.accounted_until)),
            ("Ticks", trigger and link(listing("triggers_event", q=schedule.task.name), "events")),
            ("Runs", trigger and link(listing("runs_run", q=trigger.slug), "list")),
            (
                "Task",
                "" if trigger else link(page("django_celery_beat_periodictask", schedule.task_id), "periodic task"),
            ),
        ]
    )


def _next_fires(schedule: Schedule) -> Table:
    zone, fires = zone_of_schedule(schedule), upcoming(schedule, AHEAD)
    plan = plan_of(schedule) if fires else None
    due = [plan.due(at) if plan else at for at in fires]
    return Table(
        title="Next fires",
        headers=(f"Nominal ({zone})", "Due, in your zone", ""),
        rows=[(in_zone(at, zone), instant(then), distance(then)) for at, then in zip(fires, due, strict=True)],
        empty="No fire is planned.",
        note=_moved(schedule) if fires else "",
    )


def _moved(schedule: Schedule) -> str:
    """The delay between a nominal time and its fire."""
    lengths = {"spread": schedule.spread, "jitter": schedule.jitter}
    parts = [f"{name} (up to {in_words(length)})" for name, length in lengths.items() if length]
    return f"Each fire comes after its nominal time by its {' and its '.join(parts)}." if parts else ""


def _policy(schedule: Schedule) -> Facts:
    task, limit, window = schedule.task, schedule.catch_up_max, schedule.catch_up_window
    calendars = [link(page("triggers_exclusioncalendar", one.pk), one.slug) for one in schedule.exclude.all()]
    return Facts(
        title="Policy",
        rows=[
            ("After an outage, fires", schedule.get_catch_up_display()),
            ("Maximum missed fires", limit and f"the newest {limit:,}"),
            ("Maximum age of a missed fire", window and in_words(window)),
            ("Overlap", schedule.trigger and schedule.trigger.overlap),
            ("Active hours", _hours(schedule)),
            ("Exclusion calendars", joined(calendars) if calendars else ""),
            ("Spread over", schedule.spread and in_words(schedule.spread)),
            ("Jitter up to", schedule.jitter and in_words(schedule.jitter)),
            ("Not before", task.start_time and moment(task.start_time)),
            ("Until", task.expires and moment(task.expires)),
            ("Maximum fires", schedule.max_fires),
            ("Pace set by its agent", _pace(schedule)),
        ],
    )


def _hours(schedule: Schedule) -> str:
    if not schedule.active_hours:
        return ""
    try:
        words = ActiveHours.parse(schedule.active_hours).words
    except RuleError as wrong:
        return str(wrong)  # a row written by SQL may hold any text
    return f"{words} ({schedule.active_zone or zone_of_schedule(schedule)})"


def _pace(schedule: Schedule) -> str:
    if not (schedule.pace_min and schedule.pace_max):
        return ""
    return f"from {in_words(schedule.pace_min)} to {in_words(schedule.pace_max)}"


def _edits(schedule: Schedule) -> list[Section]:
    revisions = list(Revision.objects.filter(schedule=schedule).order_by("-until", "-id")[:EDITS])
    if not revisions:
        return []
    definitions = [Definition.of(schedule), *map(Definition.of, revisions)]
    return [
        Table(
            title="Edits",
            headers=("When", "What changed", "By"),
            rows=[
                (moment(revision.until), "; ".join(changes(before, after)) or "no relevant change", revision.by)
                for revision, after, before in zip(revisions, definitions, definitions[1:], strict=False)
            ],
            empty="",
        )
    ]


def changes(before: Definition, after: Definition) -> list[str]:
    """The changes of an edit as text."""
    told: list[str] = []
    if before.describe() != after.describe():
        told.append(f"{before.describe()} → {after.describe()}")
    if before.enabled != after.enabled:
        told.append("switched on" if after.enabled else "switched off")
    for name, title in TOLD.items():
        old, new = _told(before, name), _told(after, name)
        if _plain(old) != _plain(new):
            told.append(f"{title}: {_plain(old)} → {_plain(new)}")
        elif old != new:
            told.append(f"{title}: days changed to {_plain(new)}")
    if not told and before.anchor != after.anchor and after.anchor:
        told.append(f"counted from {after.anchor:%Y-%m-%d %H:%M:%S} UTC")
    return told


def _told(definition: Definition, name: str) -> Any:
    """The value of a column as an instant in UTC; the stored text if it is not a valid instant."""
    with suppress(RuleError):
        if name in INSTANTS:
            return getattr(definition, name)
    return definition.values.get(name)


INSTANTS = ("start", "end")  # each editor's session writes them in its own zone
TOLD = {
    "name": "name",
    "start": "from",
    "end": "until",
    "catch_up": "after an outage",
    "catch_up_max": "maximum missed fires",
    "catch_up_window": "not older than (s)",
    "jitter": "jitter (s)",
    "spread": "spread (s)",
    "active_hours": "active hours",
    "active_zone": "zone of active hours",
    "max_fires": "maximum fires",
    "exclude": "exclusion calendars",
}


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(sorted(value)) or "none"
    return "none" if value in (None, "", 0) else str(value)
