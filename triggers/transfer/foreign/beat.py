"""The periodic tasks of another project's django-celery-beat, from `manage.py dumpdata django_celery_beat`."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from triggers.exceptions import Invalid, RuleError
from triggers.schedules.clock import aware, meant, zone_of
from triggers.schedules.own_tasks import FIRE_TASK, MAINTENANCE, MARK
from triggers.schedules.rules.as_json import parse_rule, rule_as_json
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rows import rule_from
from triggers.schedules.rules.rule import Rule
from triggers.transfer.foreign.brought import Brought, Line, slug_of

APP = "django_celery_beat."
CLEAN_UP = "celery.backend_cleanup"
SHAPE = "the file must be the JSON of `manage.py dumpdata django_celery_beat`"
OPTIONS = ("queue", "exchange", "routing_key", "priority", "expire_seconds")
TIMES = ("last_run_at", "start_time", "expires", "date_changed", "clocked_time")
NAIVE = (
    "its times have no offset, as that project has USE_TZ = False: name its TIME_ZONE by --tz, and with "
    "DJANGO_CELERY_BEAT_TZ_AWARE = False give --last-run-tz UTC too, as its Beat writes last_run_at in UTC then"
)
AHEAD = "its last_run_at {at} is in the future: --tz, or --last-run-tz, is not the zone in which it was written"
Fields = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Zones:
    """Of times without an offset."""

    of_times: str
    of_last_run: str


def read_beat(
    content: Any, *, agent: str, is_on: bool, zones: Zones | None = None, since: datetime | None = None
) -> Brought:
    """`is_on`: they go on where the other Beat stopped, but for those that are off there. `since`: it fired what was due until then, and
    may not have written so."""
    if not isinstance(content, list) or not all(_is_row(row) for row in content):
        raise Invalid([SHAPE])
    rows = {(row["model"].lower(), row["pk"]): row["fields"] for row in content}
    brought = Brought()
    for (model, pk), fields in sorted(rows.items(), key=lambda row: str(row[1].get("name"))):
        if model == f"{APP}periodictask":
            try:
                _task(brought, f"task {pk}", _with_offsets(fields, zones), rows, zones, agent=agent, is_on=is_on)
            except (
                RuleError,
                LookupError,
                TypeError,
                ValueError,
                AttributeError,
                OverflowError,
                RecursionError,
            ) as error:
                reason = error if isinstance(error, RuleError) else f"{SHAPE}: {error!r}"
                brought.refuse(f"task {pk} ({fields.get('name')})", reason)
    if since:
        brought.owed_since = {name: max(since, last) for name, last in brought.owed_since.items()}
    if not brought.lines and not brought.problems:
        raise Invalid([f"the file has no periodic task; {SHAPE}"])
    return brought


def _is_row(row: Any) -> bool:
    return (
        isinstance(row, dict)
        and isinstance(row.get("model"), str)
        and isinstance(row.get("pk"), (int, str))
        and isinstance(row.get("fields"), dict)
    )


def _with_offsets(fields: Fields, zones: Zones | None) -> Fields:
    """RuleError where an instant is not known."""
    times = {name: datetime.fromisoformat(fields[name]) for name in TIMES if fields.get(name)}
    if zones is None:
        if any(at.tzinfo is None for at in times.values()):
            raise RuleError(NAIVE)
        return fields
    known = {
        name: meant(at, zone_of(zones.of_last_run if name == "last_run_at" else zones.of_times))
        for name, at in times.items()
    }
    if (last := known.get("last_run_at")) and _is_ahead(last):
        raise RuleError(AHEAD.format(at=fields["last_run_at"]))
    return {**fields, **{name: at.isoformat() for name, at in known.items()}}


def _is_ahead(at: datetime) -> bool:
    return at > datetime.now(at.tzinfo) + timedelta(minutes=10)  # two clocks need not agree


def _task(
    brought: Brought,
    where: str,
    task: Fields,
    rows: Mapping[Any, Fields],
    zones: Zones | None,
    *,
    agent: str,
    is_on: bool,
) -> None:
    name = str(task["name"])
    line = Line(where=where, what=f"{name} ({task['task']})")
    brought.lines.append(line)
    if why := _why_left(task):
        line.notes.append(why)
        return
    last = aware(task["last_run_at"]) if task["last_run_at"] else None
    rule = rule_from(_columns(task, rows, zones))
    try:
        written = rule_as_json(rule)
        parse_rule(**written)
    except RuleError as error:
        # As where a crontab gives both days, which Celery reads in another way than cron: no schedule here may be ambiguous.
        line.notes.append(f"{error} Leave it to the other Beat until then.")
        return
    limits: dict[str, Any] = {"max_fires": 1} if task["one_off"] and not isinstance(rule, Clocked) else {}
    bounds = {"start": task["start_time"], "end": task["expires"]}
    limits |= {
        field: value for field, value in bounds.items() if value and not (field == "end" and isinstance(rule, Clocked))
    }
    line.becomes = f"schedule {name}: {rule.words}"
    line.notes += _notes(task, rule)
    brought.schedule(name, agent, rule=written, data=_data(task), enabled=is_on and task["enabled"], **limits)
    if is_on and task["enabled"]:
        # One that has not fired yet fires what was due since it was made.
        since = last or aware(task["date_changed"])
        brought.owed_since[name] = since


def _why_left(task: Fields) -> str:
    if task["task"] == CLEAN_UP:
        return (
            "it deletes Celery's results: leave it to a Beat of the project, or set its result_expires by other means"
        )
    if task["task"] == FIRE_TASK or task["task"].startswith(MAINTENANCE) or task["headers"] == MARK:
        return "it is Wakeful's own"
    if task["one_off"] and (not task["enabled"] or task["last_run_at"]):
        return "it was to fire once, and has"
    return ""


def _columns(task: Fields, rows: Mapping[Any, Fields], zones: Zones | None) -> dict[str, Any]:
    if task["crontab"] is not None:
        row = rows[f"{APP}crontabschedule", task["crontab"]]
        names = {
            "minute": "minute",
            "hour": "hour",
            "day_of_month": "day_of_month",
            "month": "month_of_year",
            "day_of_week": "day_of_week",
        }
        return {"crontab": {**{to: str(row[of]) for to, of in names.items()}, "zone": str(row["timezone"])}}
    if task["interval"] is not None:
        row = rows[f"{APP}intervalschedule", task["interval"]]
        return {"interval": {"every": row["every"], "period": row["period"]}}
    if task["clocked"] is not None:
        return {"clocked": _with_offsets(rows[f"{APP}clockedschedule", task["clocked"]], zones)["clocked_time"]}
    if task["solar"] is not None:
        return {"solar": rows[f"{APP}solarschedule", task["solar"]]}
    return {}


def _data(task: Fields) -> dict[str, Any]:
    """What the agent is given as `run.event.data["data"]`: the call of the task."""
    data = {
        "task": task["task"],
        "args": json.loads(task["args"] or "[]"),
        "kwargs": json.loads(task["kwargs"] or "{}"),
    }
    if headers := json.loads(task["headers"] or "{}"):
        data["headers"] = headers
    data |= {name: task[name] for name in OPTIONS if task.get(name) is not None}
    if task.get("description"):
        data["description"] = task["description"]
    return data


def _notes(task: Fields, rule: Rule) -> Iterator[str]:
    if isinstance(rule, Clocked) and _is_past(rule.at):
        yield f"it was due and has not fired: fire it once by hand, manage.py fire {slug_of(task['name'])}"
    if options := [name for name in OPTIONS if task.get(name) is not None]:
        yield f"{', '.join(options)}: in its data, for the agent that sends the task; Wakeful does not use them"
    if not task["enabled"]:
        yield "it is off there, and so it is here"


def _is_past(at: datetime) -> bool:
    return at <= datetime.now(at.tzinfo)
