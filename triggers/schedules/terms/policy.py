"""The policy of a schedule besides its rule: catch-up, options that move fires, and options that suppress them."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from django_celery_beat.models import PeriodicTask

from agents.exceptions import Permanent
from agents.guards.storable import storable
from agents.kernel.durations import in_words, parse_duration
from agents.kernel.instants import WITH_OFFSET
from agents.on import CatchUp
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.calendars import calendars_named
from triggers.schedules.clock import LONGEST_TEXT, aware, refuse_long, zone_of
from triggers.schedules.rules.interval import LONGEST, describe_length
from triggers.schedules.terms import active_hours as hours
from triggers.schedules.terms.active_hours import ActiveHours

Kind = Literal["schedule", "heartbeat", "reminder"]
NONE = timedelta(0)
MOST_CALENDARS = 20
LONGER = {"active_hours": hours.LONGEST_TEXT, "exclude": 2500}  # characters
MOST = 2**31 - 1  # an integer of PostgreSQL
IN_TASK = {"start": "start_time", "end": "expires"}  # columns of django-celery-beat's row


@dataclass(frozen=True, kw_only=True)
class SchedulePolicy:
    """The columns beside the rule, as `triggers.models.Schedule` explains them; `exclude` names calendars."""

    kind: Kind = "schedule"
    data: Any = None
    catch_up: CatchUp = "latest"
    catch_up_max: int | None = None
    catch_up_window: timedelta | None = None
    jitter: timedelta = NONE
    spread: timedelta = NONE
    active_hours: str = ""
    active_zone: str = ""
    exclude: tuple[str, ...] = ()
    max_fires: int | None = None
    pace_min: timedelta | None = None
    pace_max: timedelta | None = None
    start: datetime | None = None
    end: datetime | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any], base: "SchedulePolicy | None" = None) -> "SchedulePolicy":
        """Parse the values of a form or file: texts, numbers, ISO instants. Fields that are not given stay as in
        `base`; None or empty restores the default. RuleError: `field` names the field, the message what to write
        instead.
        """
        if unknown := sorted(set(given) - READERS.keys()):
            raise RuleError(f"{unknown[0]}: there is no such policy; there are {', '.join(READERS)}", field=unknown[0])
        policy = (base or cls()).changed(given)
        policy.check()
        return policy

    @classmethod
    def of(cls, schedule: Schedule) -> "SchedulePolicy":
        """Read the policy from rows, also from rows written by SQL."""
        columns = {name: getattr(schedule, name) for name in NAMES if name not in IN_TASK and name != "exclude"}
        in_task = {name: getattr(schedule.task, column) for name, column in IN_TASK.items()}
        slugs = sorted(calendar.slug for calendar in schedule.exclude.all()) if schedule.pk else ()
        return cls(**columns, **in_task, exclude=tuple(slugs))

    def changed(self, given: Mapping[str, Any]) -> "SchedulePolicy":
        """A copy with other values in some fields, read like `parse`, without a check whether they go together."""
        return replace(self, **{name: _read(name, value) for name, value in given.items()})

    def dump(self) -> dict[str, Any]:
        """The policy as JSON for `parse`: durations in seconds, instants in ISO 8601."""
        return {name: _dumped(getattr(self, name)) for name in NAMES}

    def changes_from(self, other: "SchedulePolicy") -> list[str]:
        """The names of the fields in which it differs."""
        return [name for name in NAMES if getattr(self, name) != getattr(other, name)]

    def check(self) -> None:
        """RuleError if its fields do not go together."""
        if self.catch_up_max is not None and self.catch_up != "all":
            fix = "clear it, or choose catch_up all"
            raise RuleError(
                f"catch_up_max: it counts only where all missed fires are caught up; {fix}", field="catch_up_max"
            )
        if (self.pace_min is None) != (self.pace_max is None):
            missing = "pace_min" if self.pace_min is None else "pace_max"
            raise RuleError(f"{missing}: a pace has a shortest and a longest interval; give it too", field=missing)
        if self.pace_min is not None and self.pace_max is not None:
            if self.kind != "heartbeat":
                raise RuleError("pace_min: only a heartbeat has a pace; make it one, or clear both", field="pace_min")
            if self.pace_min > self.pace_max:
                raise RuleError(
                    f"pace_max: {describe_length(self.pace_max)} is shorter than pace_min; exchange them",
                    field="pace_max",
                )
        if self.start and self.end and self.start >= self.end:
            raise RuleError("end: it is not after start; give a later one", field="end")

    def apply(self, schedule: Schedule) -> None:
        """Write it into the schedule's rows, in the caller's transaction; RuleError if there is no such calendar."""
        calendars = calendars_named(self.exclude)
        # The task before the schedule: the order of every lock.
        task = PeriodicTask.objects.select_for_update().get(pk=schedule.task_id)
        if any(getattr(task, column) != getattr(self, name) for name, column in IN_TASK.items()):
            for name, column in IN_TASK.items():
                setattr(task, column, getattr(self, name))
            task.save()
        columns = {name: getattr(self, name) for name in NAMES if name not in IN_TASK and name != "exclude"}
        Schedule.objects.filter(pk=schedule.pk).update(**columns)
        schedule.exclude.set(calendars)


def _read(name: str, value: Any) -> Any:
    if value is None or value == "":
        return DEFAULTS[name]
    if isinstance(value, str) and name != "data":
        refuse_long(value, name, LONGER.get(name, LONGEST_TEXT), field=name)
    try:
        return READERS[name](value)
    except RuleError as error:
        raise RuleError(f"{name}: {error}", field=name) from None
    except (ValueError, TypeError, OverflowError, Permanent) as error:
        raise RuleError(f"{name}: {error}", field=name) from None


def _one_of(*choices: str) -> Callable[[Any], str]:
    def read(value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
        return str(value)

    return read


def _count(value: Any) -> int:
    text = str(value).strip()
    if isinstance(value, bool) or not re.fullmatch(r"\d{1,10}", text) or not 1 <= int(text) <= MOST:
        raise ValueError(f"{value!r} is not a whole number from 1 to {MOST}")
    return int(text)


def _length(value: Any) -> timedelta:
    """Zero or longer."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float, timedelta)):
        raise ValueError(f'{value!r} is not a duration; write such as "90s", "30m", "1h30m" or a number of seconds')
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
        raise ValueError(f'{value!r} has no unit; write such as "{value.strip()}s" or "{value.strip()}m"')
    length = parse_duration(value)
    if not NONE <= length <= LONGEST:
        raise ValueError(f"{in_words(length)} is not between 0 and 100 years")
    return length


def _positive(value: Any) -> timedelta:
    if not (length := _length(value)):
        raise ValueError("0 leaves nothing; give a length, or none for no limit")
    return length


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is no text")
    return value


def _hours(value: Any) -> str:
    return ActiveHours.parse(_text(value)).text


def _zone(value: Any) -> str:
    return str(zone_of(_text(value)))


def _slugs(value: Any) -> tuple[str, ...]:
    names = value.split(",") if isinstance(value, str) else value
    if isinstance(names, (list, tuple)) and len(names) > MOST_CALENDARS:
        raise ValueError(f"{len(names):,} calendars; name at most {MOST_CALENDARS}")
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{value!r} is no list of names of calendars")
    return tuple(sorted({name.strip() for name in names if name.strip()}))


def _instant(value: Any) -> datetime:
    if not isinstance(value, (str, datetime)):
        raise ValueError(f"{value!r} is not a date and time with an offset; use e.g. {WITH_OFFSET}")
    return aware(value)


def _data(value: Any) -> Any:
    return json.loads(json.dumps(storable(value, "it")))  # as it comes back from its row


def _dumped(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return list(value) if isinstance(value, tuple) else value


NAMES = tuple(field.name for field in fields(SchedulePolicy))
DEFAULTS = {field.name: field.default for field in fields(SchedulePolicy)}
READERS: dict[str, Callable[[Any], Any]] = {
    "kind": _one_of(*Schedule.Kind.values),
    "data": _data,
    "catch_up": _one_of(*Schedule.CatchUp.values),
    "catch_up_max": _count,
    "catch_up_window": _positive,
    "jitter": _length,
    "spread": _length,
    "active_hours": _hours,
    "active_zone": _zone,
    "exclude": _slugs,
    "max_fires": _count,
    "pace_min": _positive,
    "pace_max": _positive,
    "start": _instant,
    "end": _instant,
}
