"""Declarations of what wakes an agent; `sync_agents` turns each into a Trigger row."""

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, Self, TypedDict, Unpack, get_args
from uuid import UUID

from agents.kernel.durations import parse_duration
from agents.kernel.instants import instant_with_offset
from agents.kernel.report import Report

Operation = Literal["insert", "update", "delete"]
Each = Literal["row", "statement"]
OPERATIONS: tuple[Operation, ...] = ("insert", "update", "delete")
CatchUp = Literal["latest", "skip", "all"]
Length = str | float | timedelta  # "30m", seconds, or a timedelta
Transition = Literal["opened", "worsened", "closed"]
UNUSED = "366d"  # of `within` where a switch has deadlines: a dispatcher of a version without them opens nothing
State = str | Callable[[], Any]


class Policy(TypedDict, total=False):
    """Options of a schedule besides its rule; docs/schedules.md explains each."""

    catch_up: CatchUp
    catch_up_max: int
    catch_up_window: Length
    jitter: Length
    spread: Length
    active_hours: str
    active_zone: str
    exclude: Sequence[str]
    max_fires: int
    start: str | datetime
    end: str | datetime
    data: Any


class FileOptions(TypedDict, total=False):
    """Options of a watched directory; docs/files.md explains each."""

    ignored: str
    is_deep: bool
    settle: Length
    marker: str
    every: Length
    hash_up_to: int
    once_per_content: bool
    has_hints: bool
    sentinel: str
    may_be_replaced: bool


FileChange = Literal["created", "changed", "renamed", "vanished"]


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """A trigger that may have reports of its own. None: those of its agent."""

    reports: tuple[Report, ...] | None = None

    def reporting(self, *reports: Report) -> Self:
        """The trigger with these reports of its runs' ends in place of its agent's; without any, its runs are not reported."""
        return replace(self, reports=reports)


@dataclass(frozen=True, kw_only=True)
class EventTrigger(Reporting):
    """Events whose type matches one of the globs, from one source or any, that pass the CEL filter."""

    types: tuple[str, ...]
    source: str = ""
    filter: str = ""
    slug: str = ""


@dataclass(frozen=True, kw_only=True)
class SourceTrigger(EventTrigger):
    """Events of a source that the code declares with the trigger; it has the trigger's slug."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    policy: Mapping[str, Any] = field(default_factory=dict)  # the trigger's policy, in addition to its agent's


@dataclass(frozen=True, kw_only=True)
class DriftTrigger(SourceTrigger):
    """The difference of two states: functions without arguments that return rows, or queries."""

    expected: "State"
    actual: "State"


@dataclass(frozen=True, kw_only=True)
class ScheduleTrigger(Reporting):
    """A schedule: wakes an agent at times."""

    policy: Mapping[str, Any] = field(default_factory=dict)
    slug: str = ""


@dataclass(frozen=True, kw_only=True)
class CronTrigger(ScheduleTrigger):
    """A five-field crontab in an IANA zone."""

    cron: str
    tz: str = "UTC"


@dataclass(frozen=True, kw_only=True)
class IntervalTrigger(ScheduleTrigger):
    """A fixed interval, counted from the first sync of the schedule, or from its start."""

    every: timedelta


@dataclass(frozen=True, kw_only=True)
class ClockedTrigger(ScheduleTrigger):
    """A single instant."""

    at: datetime


@dataclass(frozen=True, kw_only=True)
class WordsTrigger(ScheduleTrigger):
    """A rule in words, in an IANA zone."""

    words: str
    tz: str = "UTC"


TriggerDeclaration = EventTrigger | ScheduleTrigger


def event(*types: str, source: str = "", filter: str = "", slug: str = "") -> EventTrigger:
    """Wake on events by type glob ("customer.created", "invoice.*"), from any source or the one named."""
    return EventTrigger(types=types, source=source, filter=filter, slug=slug)


def webhook(source: str, *types: str, filter: str = "", slug: str = "") -> EventTrigger:
    """Wake on deliveries to /hooks/<source>/; no types means every type."""
    return EventTrigger(types=types or ("*",), source=source, filter=filter, slug=slug)


def model_change(
    model: Any,
    *,
    operations: Sequence[Operation] = OPERATIONS,
    each: Each = "row",
    fields: Sequence[str] = (),
    when: Any = None,
    exclude: Sequence[str] = (),
    own_changes: bool = False,
    filter: str = "",
    slug: str = "",
) -> SourceTrigger:
    """Wake on changes of a model's rows: inserts, updates and deletes of rows with `when`, a Q object of its own columns. With
    `fields`, an update counts if it changes one of these. Values of `exclude` are never stored. Changes by this agent itself do not
    wake it, unless `own_changes`. With each="statement", wake once for all rows of a statement: the event has their number and primary
    keys, and no values."""
    label = model if isinstance(model, str) else model._meta.label
    if unknown := sorted(set(operations) - set(OPERATIONS)) or not operations:
        raise TypeError(f"on.model_change(): operations are {', '.join(OPERATIONS)}, not {unknown or 'empty'}")
    if each not in ("row", "statement"):
        raise TypeError(f"on.model_change(): each is 'row' or 'statement', not {each!r}")
    settings = {
        "table": label,
        "each": each,
        **{f"{operation}s": operation in operations for operation in OPERATIONS},
        "columns": ", ".join(fields),
        "exclude": ", ".join(exclude),
        "condition": "" if when is None else json.dumps(_condition(when)),
    }
    return SourceTrigger(
        types=tuple(
            f"db.{label.lower()}.{operation}{'.statement' if each == 'statement' else ''}"
            for operation in OPERATIONS
            if operation in operations
        ),
        kind="table",
        settings=settings,
        policy={"own_changes": True} if own_changes else {},
        filter=filter,
        slug=slug,
    )


def absence(
    *types: str,
    within: Length | None = None,
    by: str = "",
    since: str = "",
    days: str = "",
    keys: Sequence[str] = (),
    of: str | Sequence[str] = (),
    key: str = "",
    of_key: str = "",
    source: str = "",
    of_source: str = "",
    filter: str = "",
    of_filter: str = "",
    grace: Length = 0,
    active_hours: str = "",
    tz: str = "",
    most_keys: int = 10_000,
    closed: bool = False,
    slug: str = "",
) -> SourceTrigger:
    """Wake when no event of these types has come: `within` a time since the last one, or since an event `of` other types; or `by` a
    time of day in the zone `tz` ("15:00"), on some `days` ("mon-fri"), of those that come `since` another time of day (midnight). With a
    `key` (CEL), for each of its values by itself; a deadline expects the `keys` that are listed, or those of events `of` other types.
    `source` and `filter` narrow the awaited event, `of_source` and `of_filter` the other one. With `closed`, wake as well when the
    event returns."""
    if (within is None) == (not by):
        raise TypeError('on.absence() needs one of within="30m" and by="15:00"')
    if not _are_texts(keys) or any("," in one or one != one.strip() or not one for one in keys):
        raise TypeError(f"on.absence(): keys is a list of texts without commas, not {keys!r}")
    if not (isinstance(of, str) or _are_texts(of)):
        raise TypeError(f"on.absence(): of is an event type, or a list of them, not {of!r}")
    settings = {
        "types": " ".join(types),
        "source": source,
        "filter": filter,
        "within": UNUSED if within is None else _text(within),
        "by": by,
        "since": since,
        "days": days,
        "keys": ", ".join(keys),
        "grace": _text(grace),
        "of_types": of if isinstance(of, str) else " ".join(of),
        "of_source": of_source,
        "of_filter": of_filter,
        "key": key,
        "of_key": of_key,
        "active_hours": active_hours,
        "active_zone": tz,
        "most_keys": most_keys,
    }
    told = ("absence.opened", "absence.closed") if closed else ("absence.opened",)
    return SourceTrigger(types=told, kind="absence", settings=settings, slug=slug)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple | Set) and all(isinstance(one, str) for one in value)


def _text(length: Length) -> str:
    return length if isinstance(length, str) else f"{parse_duration(length).total_seconds():g}s"


def _condition(when: Any) -> Any:
    """A Q object as JSON: {"status": "open"}, {"and": […]}, {"or": […]}, {"not": …}."""
    if isinstance(when, tuple):
        lookup, value = when
        return {lookup: _json(value)}
    if not all(hasattr(when, name) for name in ("connector", "negated", "children")):
        raise TypeError(f"on.model_change(): when is {when!r}; use a Q object")
    if when.connector == "XOR":
        raise TypeError("on.model_change(): a condition takes &, | and ~, not ^")
    parts = [_condition(child) for child in when.children]
    joined = parts[0] if len(parts) == 1 else {when.connector.lower(): parts}
    return {"not": joined} if when.negated else joined


def _json(value: Any) -> Any:
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_json(one) for one in value]
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return str(value)
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(
        f"on.model_change(): {value!r} cannot stand in a condition; use text, numbers, times, lists or None"
    )


def drift(
    expected: State,
    actual: State,
    *,
    every: str = "5m",
    hold: str = "0s",
    transitions: Sequence[Transition] = ("opened", "worsened"),
    filter: str = "",
    slug: str = "",
) -> DriftTrigger:
    """Wake when two states differ for longer than `hold`. Each is a function without arguments that returns rows (a mapping by key, or
    an iterable whose rows begin with their key), or a query on the database whose connection string is the secret of the source."""
    if unknown := sorted(set(transitions) - {"opened", "worsened", "closed"}) or not transitions:
        raise TypeError(f"on.drift(): transitions are opened, worsened and closed, not {unknown or 'empty'}")
    settings = {"expected": name_of(expected), "actual": name_of(actual), "every": every, "hold": hold}
    return DriftTrigger(
        types=tuple(f"drift.{one}" for one in transitions), kind="drift", settings=settings, expected=expected, actual=actual,
        filter=filter, slug=slug,
    )  # fmt: skip


def name_of(state: State) -> str:
    """The form of a state in the settings of a source: the query, or the name of the function."""
    if isinstance(state, str):
        return state
    if not callable(state) or "<" in getattr(state, "__qualname__", "<"):
        raise TypeError(f"on.drift(): {state!r} must be a query, or a function of a module that has a name")
    return f"callable {state.__module__}.{state.__qualname__}"


def file(
    directory: str,
    patterns: str = "*",
    *,
    changes: Sequence[FileChange] = ("created", "changed"),
    existing: bool = False,
    filter: str = "",
    slug: str = "",
    **options: Unpack[FileOptions],
) -> SourceTrigger:
    """Wake on complete files in a directory below WAKEFUL_FILE_ROOTS: on.file("/data/in", "*.csv"). `existing`: also on
    files that exist before the source does. Open the file with `agents.files.open_file(run.event)`.
    """
    if unknown := sorted(set(changes) - set(get_args(FileChange))):
        raise ValueError(f"on.file(): unknown change {unknown[0]!r}; use {', '.join(get_args(FileChange))}")
    given: dict[str, Any] = dict(_known("file", options, FileOptions))
    for name in ("settle", "every"):
        if name in given:
            given[name] = f"{parse_duration(given[name]).total_seconds():g}s"
    settings = {"directory": directory, "patterns": patterns, "begin_with": "all" if existing else "new", **given}
    types = tuple(f"file.{change}" for change in changes)
    return SourceTrigger(types=types, filter=filter, slug=slug, kind="directory", settings=settings)


def cron(expression: str, *, tz: str = "UTC", slug: str = "", **policy: Unpack[Policy]) -> CronTrigger:
    """Wake by a crontab such as "0 9 * * mon-fri", in the zone `tz`."""
    return CronTrigger(cron=expression, tz=tz, slug=slug, policy=_known("cron", policy))


def every(interval: Length, *, slug: str = "", **policy: Unpack[Policy]) -> IntervalTrigger:
    """Wake every "30m" (or seconds, or a timedelta)."""
    return IntervalTrigger(every=parse_duration(interval), slug=slug, policy=_known("every", policy))


def at(instant: str | datetime, *, slug: str = "", **policy: Unpack[Policy]) -> ClockedTrigger:
    """Wake once, at an instant with an offset, such as "2026-12-01T09:00+01:00"; ValueError if it has none."""
    try:
        moment = instant_with_offset(instant)
    except ValueError as error:
        raise ValueError(f"on.at(): {error}") from None
    return ClockedTrigger(at=moment, slug=slug, policy=_known("at", policy))


def schedule(words: str, *, tz: str = "UTC", slug: str = "", **policy: Unpack[Policy]) -> WordsTrigger:
    """Wake by a rule in words, such as "every weekday at 09:00", in the zone `tz`. Relative rules ("in 20 minutes", "tomorrow
    at 9:00") count from the first sync of the schedule."""
    return WordsTrigger(words=words, tz=tz, slug=slug, policy=_known("schedule", policy))


def heartbeat(
    interval: Length,
    *,
    pace: tuple[Length, Length] | None = None,
    tz: str = "",
    slug: str = "",
    **policy: Unpack[Policy],
) -> IntervalTrigger:
    """Wake every `interval` to check whether there is something to do. The agent may move its next wake with `run.next_check`,
    within `pace`; `tz` is the zone of its active hours."""
    given: dict[str, Any] = {**_known("heartbeat", policy), "kind": "heartbeat"}
    if pace:
        given["pace_min"], given["pace_max"] = map(parse_duration, pace)
    if tz:
        given["active_zone"] = tz
    return IntervalTrigger(every=parse_duration(interval), slug=slug, policy=given)


def _known(name: str, policy: Mapping[str, Any], options: type[Any] = Policy) -> Mapping[str, Any]:
    if unknown := sorted(policy.keys() - options.__annotations__):
        raise TypeError(f"on.{name}() got an unexpected keyword argument {unknown[0]!r}")
    return policy
