"""Delete old events and the rows that belong to them, and old skips, revisions and counts. Events that are still needed are
kept."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, partial
from typing import Any
from uuid import UUID

from django.conf import settings

from agents.kernel.ids import first_id_at
from runs.db.sql import execute, fetch
from runs.retention.prune import LAG as LAG_OF_RUNS
from runs.retention.prune import PAYLOADS as PAYLOADS_OF_RUNS
from runs.retention.sweep import COUNT_FEW, DELETE_FEW, Deletion, Step, Walk, few
from triggers.dispatch.admission import loop_rate
from triggers.matching.flow_control import Intake
from triggers.models import CalendarEntry, Event, Trigger
from triggers.retention.payloads import not_leaving, not_needed, remove_payloads

LAG = 2 * LAG_OF_RUNS
SAMPLES_WHOLE = timedelta(days=2)  # then they are thinned
# The ledger is deleted together with its event, not before: it prevents a second processing of the event.
DELETE = [
    "DELETE FROM triggers_decision WHERE event_id = ANY(%s::uuid[])",
    "DELETE FROM triggers_redelivery WHERE event_id = ANY(%s::uuid[])",
    "DELETE FROM triggers_redispatch WHERE event_id = ANY(%s::uuid[])",
    "DELETE FROM triggers_eventdelivery WHERE event_id = ANY(%s::uuid[])",
    "DELETE FROM runs_processedevent WHERE event_id = ANY(%s::uuid[])",
    "DELETE FROM triggers_event WHERE id = ANY(%s::uuid[])",
]
# The first events of the causal chains of live runs and undispatched events, and their direct causes.
# Live runs are read from the small partial indexes.
ORIGINS = """
WITH live AS (
  SELECT root_id, event_ids FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL
  UNION ALL SELECT root_id, event_ids FROM runs_run WHERE status = 'queued' AND due_at IS NOT NULL
  UNION ALL SELECT root_id, event_ids FROM runs_run
    WHERE status IN ('queued', 'running', 'uncertain', 'waiting') AND key IS NOT NULL
  UNION ALL SELECT root_id, event_ids FROM runs_run WHERE status = 'running'
  UNION ALL SELECT root_id, event_ids FROM runs_run WHERE status = 'uncertain'
  UNION ALL SELECT root_id, event_ids FROM runs_run WHERE status = 'waiting'
  UNION ALL SELECT root_id, event_ids FROM triggers_window
  UNION ALL SELECT root_id, ARRAY[id] FROM triggers_event WHERE dispatched_at IS NULL
  UNION ALL SELECT (payload->>'root_id')::uuid, ARRAY[(payload->>'cause_event_id')::uuid] FROM runs_outboxmessage
    WHERE topic = 'event'
), old AS (SELECT * FROM live WHERE root_id < %(before)s::uuid)
SELECT root_id FROM old
UNION SELECT cause FROM old, unnest(old.event_ids) member
  JOIN triggers_event event ON event.id = member, LATERAL (VALUES (event.id), (event.cause_event_id)) origin (cause)
  WHERE cause IS NOT NULL
"""
# As a subquery, the clock is read once, so that the index can be used.
PAST = "created_at < (SELECT clock_timestamp()) - %(keep)s::interval"
OLD_GAPS = "at < (SELECT clock_timestamp()) - %(keep)s::interval"
OLD_POISON = "last_at < (SELECT clock_timestamp()) - %(keep)s::interval"
# Of a source that is polled they go with the next poll.
OVER = "over_at < (SELECT clock_timestamp()) - %(keep)s::interval"
OLD_HOURS = "hour < (SELECT clock_timestamp()) - %(keep)s::interval"
# Beat still reads revisions of times that it has not accounted for.
SETTLED = """
until < (SELECT clock_timestamp()) - %(keep)s::interval AND NOT EXISTS (
  SELECT FROM triggers_schedule schedule WHERE schedule.id = schedule_id AND schedule.stale
    AND coalesce(schedule.accounted_until, schedule.created_at) < triggers_revision.until)
"""
ENDED = "ended_at < clock_timestamp() - %(keep)s::interval"
OF_ENDED = f"backfill_id IN (SELECT id FROM triggers_backfill WHERE {ENDED})"  # noqa: S608
EMPTIED = (
    f"{ENDED} AND NOT EXISTS (SELECT FROM triggers_backfilltick tick WHERE tick.backfill_id = triggers_backfill.id)"
)
OLD_SAMPLES = "at < (SELECT clock_timestamp()) - %(keep)s::interval"
# Of older samples the last one of five minutes is kept. A week is looked through, so that what is thinned is not read again and again.
SURPLUS = """
at < (SELECT clock_timestamp()) - %(keep)s::interval AND at > (SELECT clock_timestamp()) - %(keep)s::interval - interval '7 days'
AND EXISTS (SELECT FROM triggers_metricsample later WHERE later.series_id = triggers_metricsample.series_id
  AND later.at > triggers_metricsample.at
  AND later.at < date_bin('5 minutes', triggers_metricsample.at, '2000-01-01Z') + interval '5 minutes')
"""
# An episode of a series that has no samples any more, such as of a host that is gone, never closes.
OLD_EPISODES = """
closed_at < (SELECT clock_timestamp()) - %(keep)s::interval OR (closed_at IS NULL AND EXISTS (
  SELECT FROM triggers_metricseries series
  WHERE series.id = series_id AND series.last_at < (SELECT clock_timestamp()) - %(keep)s::interval))
"""
# Of a series that has had no sample for as long, such as of a host that is gone.
ENDED_STATES = """
seen_at < (SELECT clock_timestamp()) - %(keep)s::interval AND NOT EXISTS (
  SELECT FROM triggers_metricepisode episode WHERE episode.series_id = triggers_detectorstate.series_id AND episode.closed_at IS NULL)
"""
ENDED_SERIES = """
last_at < (SELECT clock_timestamp()) - %(keep)s::interval
AND NOT EXISTS (SELECT FROM triggers_metricsample sample WHERE sample.series_id = triggers_metricseries.id)
AND NOT EXISTS (SELECT FROM triggers_metricepisode episode WHERE episode.series_id = triggers_metricseries.id)
AND NOT EXISTS (SELECT FROM triggers_detectorstate state WHERE state.series_id = triggers_metricseries.id)
"""
# The row of a drift source records that it stays disarmed.
FORGOTTEN = """
disarmed_at < (SELECT clock_timestamp()) - %(keep)s::interval
AND NOT EXISTS (
  SELECT FROM triggers_source source WHERE source.id = triggers_metricdetector.source_id AND source.kind = 'drift')
AND NOT EXISTS (SELECT FROM triggers_metricepisode episode WHERE episode.detector_id = triggers_metricdetector.id)
"""
IDLE = "starts[cardinality(starts)] < clock_timestamp() - %(keep)s::interval"


def steps() -> list[Step]:
    """The steps of retention for events; those of `runs.retention.prune` run first."""
    payloads, events = settings.WAKEFUL_KEEP_PAYLOADS, settings.WAKEFUL_KEEP_EVENTS
    story = cache(live_origins)

    def old_payload(ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
        return not_leaving(not_needed(came_before(ids, cutoff, payload_removed_at=None)))

    def old_payload_then(ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
        return not_leaving(not_needed(came_before(ids, cutoff, payload_removed_at=None), but_by_runs_before=cutoff))

    def old(ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
        return without(story, not_leaving(not_needed(came_before(ids, cutoff))), cutoff)

    def old_then(ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
        return without(story, not_leaving(not_needed(came_before(ids, cutoff), but_by_runs_before=cutoff)), cutoff)

    walk = partial(Walk, table="triggers_event", lag=LAG, after=PAYLOADS_OF_RUNS)
    return [
        walk(name="events.payload", keep=payloads, judge=old_payload, foresee=old_payload_then, remove=remove_payloads),
        walk(name="events", keep=events, judge=old, foresee=old_then, remove=delete_events),
        few("deliveries.refused", "triggers_refuseddelivery", key="id", which=OLD_HOURS, keep=events),
        few("sources.gaps", "triggers_sourcegap", key="id", which=OLD_GAPS, keep=events),
        few("messages.poison", "triggers_poisonmessage", key="id", which=OLD_POISON, keep=payloads),
        few("calendars.over", "triggers_calendarentry", key="id", which=OVER, keep=CalendarEntry.KEPT),
        few("samples.thinned", "triggers_metricsample", key="id", which=SURPLUS, keep=SAMPLES_WHOLE),
        few("samples", "triggers_metricsample", key="id", which=OLD_SAMPLES, keep=events),
        few("episodes", "triggers_metricepisode", key="id", which=OLD_EPISODES, keep=events),
        few("detectors.states", "triggers_detectorstate", key="id", which=ENDED_STATES, keep=events),
        few("series", "triggers_metricseries", key="id", which=ENDED_SERIES, keep=events),
        few("detectors", "triggers_metricdetector", key="id", which=FORGOTTEN, keep=events),
        few("skips", "triggers_skip", key="id", which=PAST, keep=events),
        few("revisions", "triggers_revision", key="id", which=SETTLED, keep=events),
        few("backfills.ticks", "triggers_backfilltick", key="id", which=OF_ENDED, keep=events),
        backfills(events),
        few("replays", "triggers_replay", key="id", which=ENDED, keep=events),
        few("rates", "triggers_rateuse", key="key", which=IDLE, keep=longest_period()),
    ]


def backfills(keep: timedelta) -> Deletion:
    """Delete backfills that ended long ago, after their ticks."""
    names = {"table": "triggers_backfill", "key": "id"}
    return Deletion(
        name="backfills",
        keep=keep,
        delete=DELETE_FEW.format(**names, which=EMPTIED),
        which=COUNT_FEW.format(**names, which=ENDED),
    )


def came_before(ids: Sequence[UUID], instant: datetime, **fields: Any) -> list[UUID]:
    """The events among these that were received, or imported, before."""
    came = Event.objects.filter(id__among=ids, received_at__lt=instant, **fields).exclude(imported_at__gte=instant)
    return list(came.values_list("id", flat=True))


def without(story: Callable[[date], set[UUID]], ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
    """The events that are not the origin of a live run or event."""
    told = story(cutoff.date()) if ids else set()
    return [id for id in ids if id not in told]


def delete_events(ids: Sequence[UUID]) -> None:
    for statement in DELETE:
        execute(statement, [ids])


def live_origins(day: date) -> set[UUID]:
    """The origins of live runs and events that are older than the end of this day. Queried once per round: it takes a
    second with a million live runs, and a chain that continues was live before."""
    before = datetime.combine(day, time.max, tzinfo=UTC) + timedelta(days=1)
    return {id for (id,) in fetch(ORIGINS, {"before": first_id_at(before)})}


def longest_period() -> timedelta:
    """The longest period of any trigger's rate, or of the loop rate."""
    longest = max(timedelta(days=1), loop_rate().period)
    for policy in Trigger.objects.values_list("policy", flat=True):
        with suppress(ValueError):
            if rate := Intake.load(policy).rate:
                longest = max(longest, rate.period)
    return longest
