"""How sources do, in one word each, with what it rests on: the list of sources, a source's page and the first page share it.

The rhythm is that of a source's own past. It counts as silent after three times as long as the longest of its last gaps, and as it was
quiet at this time yesterday and a week ago: nights and weekends without an event are no news. Each part reads a bounded number of rows
by an index."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import pairwise
from uuid import UUID

from agents.kernel.durations import in_words
from config.console.sources.switches import DOWN, LATE, NEVER, PAUSED, UP, defined, in_short, state_of
from runs.db.sql import fetch_as
from runs.processes.alive import IS_ALIVE
from runs.processes.lease import patience
from triggers.events.order import seq_before
from triggers.models import Source
from triggers.sources.kind import kinds
from triggers.sources.metrics.metric import Metric
from triggers.sources.runner import runners
from triggers.switches.switch import KINDS as SWITCHES

LAST = 60  # events, or samples of the newest series
FEWEST = 5  # gaps that make a rhythm
FACTOR = 3
LEAST, LEAST_UNKNOWN = timedelta(minutes=10), timedelta(hours=1)  # the latter while nothing is known of the day before
DAY, WEEK = timedelta(days=1), timedelta(days=7)
FAILS, NOT_READ, REFUSED, SILENT, HELD = "fails", "not read", "refused", "silent", "held"
AS_USUAL, TOO_FEW, NO_EVENT, DISABLED, BUILT_IN = (
    "as usual",
    "too few events yet",
    "no event yet",
    "disabled",
    "built in",
)
TROUBLES = (DOWN, FAILS, REFUSED, NOT_READ, LATE, HELD)
# The worst first.
LEVELS = {
    DOWN: "bad", FAILS: "bad", REFUSED: "bad", NOT_READ: "bad", LATE: "warning", SILENT: "warning", HELD: "warning",
    AS_USUAL: "good", UP: "good", TOO_FEW: "", NO_EVENT: "", NEVER: "", DISABLED: "", PAUSED: "", BUILT_IN: "",
}  # fmt: skip
COLOURS = {
    word: {"good": "success", "bad": "danger", "warning": "warning", "": "default"}[level]
    for word, level in LEVELS.items()
}
# Two comparisons instead of an equality, so that the order is that of one index alone: by an equality PostgreSQL may take the index by
# `seq`, and pass by the events of all other sources.
OF_SOURCE = "source_id >= source.id AND (source_id, seq) <= (source.id, {}) AND NOT samples.count"
NEWEST_FIRST = "ORDER BY source_id DESC, seq DESC"
ALL = OF_SOURCE.format(2**63 - 1)
BEFORE = f"""(SELECT received_at FROM triggers_event WHERE {OF_SOURCE} AND dispatched_at IS NOT NULL {NEWEST_FIRST} LIMIT 1)"""  # noqa: S608
CONDITIONS = f"""
SELECT source.id, arrived.at, arrived.last_at, refused.refused_since, refused.refusal,
  coalesce(reading.failing_since, watched.failing_since, slot.problem_since) AS failing_since,
  coalesce(nullif(reading.error, ''), nullif(watched.error, ''), slot.problem, '') AS error, reading.held_since,
  EXISTS (SELECT FROM runs_worker worker WHERE worker.id = reading.owner_id AND {IS_ALIVE}) AS is_read,
  timer.seen_at, timer.due_at, opened.opened_at, clock_timestamp() AS now,
  {BEFORE.format("%(yesterday)s::bigint")} AS yesterday, {BEFORE.format("%(week)s::bigint")} AS week
FROM triggers_source source
CROSS JOIN LATERAL (SELECT source.kind = ANY(%(metrics)s::text[]) AS count) samples
CROSS JOIN LATERAL (
  SELECT array_agg(at ORDER BY at DESC) FILTER (WHERE NOT is_imported) AS at, max(at) AS last_at FROM (
    (SELECT received_at AS at, imported_at IS NOT NULL AS is_imported FROM triggers_event
     WHERE {ALL} AND dispatched_at IS NOT NULL {NEWEST_FIRST} LIMIT %(last)s::int)
    UNION ALL
    (SELECT received_at, imported_at IS NOT NULL FROM triggers_event
     WHERE {ALL} AND dispatched_at IS NULL {NEWEST_FIRST} LIMIT %(last)s::int)
    UNION ALL
    (SELECT at, false FROM triggers_metricsample WHERE samples.count AND series_id = (
       SELECT id FROM triggers_metricseries WHERE source_id = source.id ORDER BY last_at DESC NULLS LAST LIMIT 1)
     ORDER BY at DESC LIMIT %(last)s::int)) newest) arrived
CROSS JOIN LATERAL (
  SELECT min(greatest(first_at, arrived.last_at)) AS refused_since, (array_agg(reason ORDER BY last_at DESC))[1] AS refusal
  FROM triggers_refuseddelivery
  WHERE source_id = source.id AND hour >= %(since)s::timestamptz AND last_at > coalesce(arrived.last_at, '-infinity')) refused
LEFT JOIN triggers_reading reading ON reading.source_id = source.id
LEFT JOIN triggers_watchedtable watched ON watched.source_id = source.id
LEFT JOIN triggers_watchedslot slot ON slot.source_id = source.id AND slot.is_bad
LEFT JOIN triggers_switchtimer timer ON timer.source_id = source.id AND timer.key = ''
LEFT JOIN LATERAL (
  SELECT opened_at FROM triggers_switchtimer WHERE source_id = source.id AND state = 'open' ORDER BY opened_at DESC LIMIT 1
) opened ON true
WHERE source.id = ANY(%(sources)s::uuid[])
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Found:
    """What the rows say of a source; `at`: of its last events or samples, without imported ones. `yesterday` and `week`: when the last
    one before then had come."""

    id: UUID
    at: Sequence[datetime] | None
    last_at: datetime | None
    refused_since: datetime | None
    refusal: str | None
    failing_since: datetime | None
    error: str
    held_since: datetime | None
    is_read: bool
    seen_at: datetime | None
    due_at: datetime | None
    opened_at: datetime | None
    now: datetime
    yesterday: datetime | None
    week: datetime | None


@dataclass(frozen=True, kw_only=True)
class Rhythm:
    """What is usual for a source."""

    median: timedelta
    longest: timedelta
    gaps: int
    yesterday: timedelta | None  # for how long it was quiet at this time
    week: timedelta | None

    @cached_property
    def silent_after(self) -> timedelta:
        return max(FACTOR * max([self.longest, *self._past]), self.least)

    @property
    def least(self) -> timedelta:
        return LEAST if self._past else LEAST_UNKNOWN

    @property
    def _past(self) -> list[timedelta]:
        return [quiet for quiet in (self.yesterday, self.week) if quiet is not None]

    @property
    def words(self) -> str:
        return f"usually every {in_words(_rounded(self.median))}"


@dataclass(frozen=True, kw_only=True)
class Condition:
    """`word`: one of LEVELS, and since when, if that is known; `why`: for a person, or empty. `rhythm`: None if there is none."""

    word: str
    since: datetime | None = None
    why: str = ""
    last_at: datetime | None
    rhythm: Rhythm | None
    now: datetime
    counts_samples: bool = False

    @property
    def level(self) -> str:
        return LEVELS[self.word]

    @property
    def said(self) -> str:
        """What the word rests on, in short."""
        if self.word in TROUBLES:
            since = f"since {in_words(_rounded(self.now - self.since))}" if self.since else ""
            return ": ".join(part for part in (since, self.why) if part)
        if self.rhythm is None:
            return self.why
        return f"{self.rhythm.words}; silent after {in_words(_rounded(self.rhythm.silent_after))}"


def conditions_of(sources: Iterable[Source], *, now: datetime) -> Mapping[UUID, Condition]:
    known = {source.pk: source for source in sources}
    asked = {
        "sources": list(known),
        "metrics": [name for name, kind in kinds().items() if isinstance(kind, Metric)],
        "last": LAST,
        "since": now - DAY,
        "yesterday": seq_before(now - DAY),
        "week": seq_before(now - WEEK),
        **patience(),
    }
    return {found.id: _condition(known[found.id], found) for found in fetch_as(Found, CONDITIONS, asked)}


def _condition(source: Source, found: Found) -> Condition:
    kind = kinds().get(source.kind)
    if source.kind in SWITCHES:
        return _of_switch(source, found)
    rhythm = _rhythm(found) if kind else None
    word, since, why = _state(source, found, rhythm)
    return Condition(
        word=word,
        since=since,
        why=why,
        last_at=found.last_at,
        rhythm=rhythm,
        now=found.now,
        counts_samples=isinstance(kind, Metric),
    )


def _of_switch(source: Source, found: Found) -> Condition:
    """A switch waits for the events of others: its own are those of its openings, which make no rhythm."""
    switch = defined(source)
    word = state_of(switch, source, found.opened_at is not None, found.seen_at, found.due_at, now=found.now)
    why = in_short(switch) if switch else "its settings are invalid"
    since = {DOWN: found.opened_at, LATE: found.due_at}.get(word)
    return Condition(word=word, since=since, why=why, last_at=found.seen_at, rhythm=None, now=found.now)


def _state(source: Source, found: Found, rhythm: Rhythm | None) -> tuple[str, datetime | None, str]:
    """The word, since when, and why."""
    if source.kind not in kinds():
        return BUILT_IN, None, ""
    if not source.enabled:
        return DISABLED, None, ""
    if found.failing_since:
        return FAILS, found.failing_since, found.error
    if source.kind in runners() and not found.is_read:
        return NOT_READ, None, "no live process reads it"
    if found.refused_since:
        return REFUSED, found.refused_since, found.refusal or ""
    if found.held_since:
        return HELD, found.held_since, "too many events wait for dispatch"
    if rhythm is None or found.last_at is None:
        return TOO_FEW if found.last_at else NO_EVENT, None, ""
    is_silent = found.now - found.last_at > rhythm.silent_after
    return (SILENT, found.last_at, "") if is_silent else (AS_USUAL, None, "")


def _rhythm(found: Found) -> Rhythm | None:
    at = list(found.at or ())[:LAST]
    gaps = sorted(later - earlier for later, earlier in pairwise(at))
    if len(gaps) < FEWEST:
        return None
    return Rhythm(
        median=gaps[len(gaps) // 2],
        longest=gaps[-1],
        gaps=len(gaps),
        yesterday=_quiet(found, found.yesterday, DAY),
        week=_quiet(found, found.week, WEEK),
    )


def _quiet(found: Found, before: datetime | None, ago: timedelta) -> timedelta | None:
    """How long it had been quiet this long ago; None: that is not known, or it is the silence of now."""
    if before is None or found.last_at is None or before >= found.last_at:
        return None
    return max(found.now - ago - before, timedelta())


def _rounded(gap: timedelta) -> timedelta:
    seconds = gap.total_seconds()
    unit = 86400 if seconds >= 172800 else 3600 if seconds >= 7200 else 60 if seconds >= 120 else 1
    return timedelta(seconds=max(round(seconds / unit), 1) * unit)
