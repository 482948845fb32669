"""Store samples, let the armed detectors see them, and record the events of their episodes: all of it in one transaction, so that a
crash leaves none of it, and a sample that comes again changes nothing.

Samples of one source are taken in one after the other: the row of the source is locked. A series has at most one sample in a second,
and a source at most MOST_SERIES series. A sample that is older than the last one of its series is stored, but no detector sees it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import structlog
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Greatest, Now
from psycopg.types.json import Jsonb

from runs.db.sql import database_now, execute_many, fetch
from triggers.accept import Incoming, accept
from triggers.models import DetectorState, MetricDetector, MetricEpisode, MetricSeries
from triggers.sources.http.headers import storable
from triggers.sources.metrics.detector import MOST, Detector, Observation, Terms, detectors
from triggers.sources.metrics.episodes import Change, Transition, see
from triggers.sources.polling.novelty import digest
from triggers.sources.process.poison import keep
from triggers.sources.runner import Poison, origin_of
from triggers.sources.settings import InvalidSettings

log = structlog.get_logger(__name__)

MOST_SERIES = 100  # of a source
LONGEST_NAME = 200  # characters of a series' name
EARLY = timedelta(minutes=5)  # by which a sample may be ahead of the database's clock
OLD = timedelta(days=30)

# Two statements that lock the source otherwise (an event that refers to it) do not wait for this.
LOCK = "SELECT FROM triggers_source WHERE id = %s::uuid FOR NO KEY UPDATE"
INSERT = """
INSERT INTO triggers_metricsample (series_id, at, value)
SELECT * FROM unnest(%s::bigint[], %s::timestamptz[], %s::float8[])
ON CONFLICT (series_id, at) DO NOTHING RETURNING series_id, at
"""
NEWEST = """
UPDATE triggers_metricseries SET last_at = %s::timestamptz, last_value = %s::float8
WHERE id = %s::bigint AND (last_at IS NULL OR last_at < %s::timestamptz)
"""
KEEP = """
INSERT INTO triggers_detectorstate (detector_id, series_id, state, seen_at) VALUES (%s::bigint, %s::bigint, %s::jsonb, %s::timestamptz)
ON CONFLICT (detector_id, series_id) DO UPDATE SET state = excluded.state, seen_at = excluded.seen_at
"""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A number of a series. `detail` goes into the events of an episode; it is not stored with the sample."""

    series: str = ""
    at: datetime
    value: float
    detail: Any = None


@dataclass(frozen=True, kw_only=True)
class Refused:
    index: int
    reason: str


@dataclass(kw_only=True)
class Taken:
    """The outcome of recording samples: refused samples are not stored; late ones are stored but not seen by
    detectors.
    """

    stored: int = 0
    known: int = 0
    late: int = 0
    refused: list[Refused] = field(default_factory=list)
    events: list[UUID] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Metered:
    """A metric source, and the beginning of its events' types."""

    source_id: UUID
    slug: str
    noun: str = "metric"


def named(text: str) -> str:
    """A name of a series that fits. Those that are cut stay different, such as those of many labels."""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 14]}… {digest(text)[:12]}"


def take_in(source: Metered, samples: Sequence[Sample]) -> Taken:
    """Store the samples and show them to the armed detectors, and show those that see absence that the other series have none. In
    the caller's transaction."""
    fetch(LOCK, [source.source_id])
    now = database_now()
    taken = Taken()
    sound = list(_sound(samples, now, taken))
    series = _series(source.source_id, [one.series for _, one in sound])
    _mend([one for one in series.values() if one.last_at and one.last_at > now + EARLY])
    rows: dict[tuple[int, datetime], Sample] = {}
    for index, one in sound:
        if one.series not in series:
            taken.refused.append(Refused(index=index, reason=f"the source has {MOST_SERIES} series already"))
        else:
            rows.setdefault((series[one.series].pk, one.at.replace(microsecond=0)), one)
    new = _insert(rows)
    taken.stored, taken.known = len(new), len(samples) - len(taken.refused) - len(new)
    last = {one.pk: one.last_at for one in series.values()}
    in_order = sorted(new, key=lambda row: row[:2])
    fresh = [(at, id, one) for id, at, one in in_order if (before := last[id]) is None or at > before]
    taken.late = len(new) - len(fresh)
    execute_many(NEWEST, [[at, one.value, id, at] for at, id, one in fresh])
    _watch(source, {one.pk: one.name for one in series.values()}, fresh, now, taken)
    taken.refused.sort(key=lambda one: one.index)
    return taken


def _sound(samples: Sequence[Sample], now: datetime, taken: Taken) -> Iterable[tuple[int, Sample]]:
    for index, one in enumerate(samples):
        if wrong := _what_is_wrong_with(one, now):
            taken.refused.append(Refused(index=index, reason=wrong))
        else:
            yield index, one


def _what_is_wrong_with(sample: Sample, now: datetime) -> str:
    if not math.isfinite(sample.value) or abs(sample.value) > MOST:
        return f"its value must be a number, at most {MOST:g}"
    if len(sample.series) > LONGEST_NAME or not sample.series.isprintable() or storable(sample.series) != sample.series:
        return f"its series must be at most {LONGEST_NAME} printable characters"
    if sample.at > now + EARLY:
        return "its time is in the future"
    return f"it is older than {OLD.days} days" if sample.at < now - OLD else ""


def _series(source_id: UUID, names: Iterable[str]) -> dict[str, MetricSeries]:
    """The series of a source by name; new names are added while there is room."""
    known = {one.name: one for one in MetricSeries.objects.filter(source_id=source_id).order_by("id")}
    for name in dict.fromkeys(names):
        if name not in known and len(known) < MOST_SERIES:
            known[name] = MetricSeries.objects.create(source_id=source_id, name=name)
    return known


def _mend(ahead: Sequence[MetricSeries]) -> None:
    """The clock was set back: else no detector would see a sample before the time comes that it had shown."""
    for one in ahead:
        one.last_at = None
        one.save(update_fields=["last_at"])
        DetectorState.objects.filter(series=one).update(seen_at=_time(0))
        log.warning("metric.clock_set_back", series=one.pk)


def _insert(rows: Mapping[tuple[int, datetime], Sample]) -> list[tuple[int, datetime, Sample]]:
    if not rows:
        return []
    ids, times = [list(column) for column in zip(*rows, strict=True)]
    inserted = fetch(INSERT, [ids, times, [one.value for one in rows.values()]])
    return [(id, at, rows[id, at]) for id, at in inserted]


def _watch(
    source: Metered,
    names: Mapping[int, str],
    fresh: Sequence[tuple[datetime, int, Sample]],
    now: datetime,
    taken: Taken,
) -> None:
    for row in MetricDetector.objects.filter(source_id=source.source_id, disarmed_at=None).order_by("id"):
        try:
            detector = detectors()[row.name]
            settings = detector.clean_settings(row.settings)
        except (KeyError, InvalidSettings) as error:
            _fail(source, row, f"Its settings are those of another version: {error}")
            continue
        try:
            with transaction.atomic():
                taken.events += _show(source, row, detector, settings, names, fresh, now)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            log.exception("detector.failed", source=source.slug, detector=row.pk)
            _fail(source, row, f"It failed: {type(error).__name__}: {error}")


def _show(
    source: Metered,
    row: MetricDetector,
    detector: Detector[Any],
    settings: Terms,
    names: Mapping[int, str],
    fresh: Sequence[tuple[datetime, int, Sample]],
    now: datetime,
) -> list[UUID]:
    """Show a detector the samples, oldest first, and then that a series has none; record what became of its episodes."""
    observations: list[tuple[int, Observation, Any]] = [
        (id, Observation(at.timestamp(), one.value), one.detail) for at, id, one in fresh
    ]
    if detector.sees_absence:
        observations += [(id, Observation(now.timestamp(), None), None) for id in names]
    shown = {id for id, _, _ in observations}
    states = {one.series_id: one for one in DetectorState.objects.filter(detector=row, series_id__in=shown)}
    events = []
    changed: dict[int, DetectorState] = {}
    for id, observation, detail in observations:
        state = states.setdefault(id, DetectorState(detector=row, series_id=id, state={}, seen_at=_time(0)))
        if observation.at <= state.seen_at.timestamp():
            continue
        seen = see(detector, settings, state.state, observation)
        state.state = seen.state
        if observation.value is not None:  # a sample may come after an observation that is younger than it
            state.seen_at = _time(observation.at)
        changed[id] = state
        if seen.transition:
            events.append(_record(source, row, id, names[id], seen.transition, detail))
    execute_many(KEEP, [[row.pk, id, Jsonb(one.state), one.seen_at] for id, one in changed.items()])
    return events


def _record(source: Metered, row: MetricDetector, series_id: int, series: str, found: Transition, detail: Any) -> UUID:
    """Write the episode and its event."""
    episode = uuid5(source.source_id, f"{row.pk} {series_id} {found.opened_at}")
    event = Incoming(
        source_id=source.source_id,
        ce_source=origin_of(source.slug),
        ce_id=f"{episode}:{found.change}:{found.level}",
        type=f"{source.noun}.{found.change}",
        subject=series,
        time=_time(found.at),
        data=data_of(row, episode, series, found, detail),
    )
    [accepted] = accept([event])
    if found.change is Change.OPENED:
        MetricEpisode.objects.create(
            id=episode, detector=row, series_id=series_id, since=_time(found.since), opened_at=_time(found.at),
            level=found.level, value=found.value, expected=found.reading.expected, event_ids=[str(accepted.event_id)],
        )  # fmt: skip
        return accepted.event_id
    opened = MetricEpisode.objects.filter(pk=episode).first()
    if opened is None:  # retention has just taken it
        return accepted.event_id
    opened.event_ids = [*opened.event_ids, str(accepted.event_id)]
    if found.change is Change.CLOSED:
        opened.closed_at = max(_time(found.at), opened.opened_at)
    else:
        opened.level, opened.value, opened.expected = found.level, found.value, found.reading.expected
    opened.save()
    return accepted.event_id


def data_of(row: MetricDetector, episode: UUID, series: str, found: Transition, detail: Any) -> dict[str, Any]:
    data: dict[str, Any] = {
        "episode": str(episode),
        "series": series,
        "detector": row.name,
        "detector_id": row.pk,
        "value": found.value,
        "expected": found.reading.expected,
        "lower": found.reading.lower,
        "upper": found.reading.upper,
        "level": found.level,
        "since": _time(found.since).isoformat(),
        "opened_at": _time(found.opened_at).isoformat(),
        "at": _time(found.at).isoformat(),
    }
    if found.held_back:
        data["held_back"] = found.held_back
    if found.quiet_until:
        data["quiet_until"] = _time(found.quiet_until).isoformat()
    return data if detail is None else {**data, "detail": detail}


def _fail(source: Metered, row: MetricDetector, error: str) -> None:
    """Disarm it: it would fail again with each sample. That is kept with what could not become events, which is a problem."""
    log.warning("detector.disarmed", detector=row.pk, error=error)
    said = f"its detector {row.name} (no. {row.pk}) is disarmed: {error}"
    keep(source.source_id, source.slug, [Poison(id=f"detector:{row.pk}", reason=said)])
    row.error = error[:1000]
    row.save(update_fields=["error"])
    end(row)


def end(row: MetricDetector) -> None:
    """Disarm a detector: its open episodes end without an event, and what it has learned is forgotten."""
    MetricDetector.objects.filter(pk=row.pk).update(disarmed_at=Now())
    open_ones = MetricEpisode.objects.filter(detector=row, closed_at=None)
    open_ones.update(closed_at=Greatest(Now(), F("opened_at")), is_disarmed=True)
    DetectorState.objects.filter(detector=row).delete()


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
