"""/metrics for Prometheus, read from the database at each scrape, so that every web process returns the same numbers."""

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from agents.kernel.ids import first_id_at
from config.health.problems import problems
from config.health.situation import Situation, read_situation
from config.health.totals import totals
from runs.budgets.spending import spent_today
from runs.budgets.windows import current
from runs.db.signs.oldest_transaction import OLDEST_TRANSACTION
from runs.db.sql import database_now, fetch
from runs.keys import BLOCKED
from runs.queues.state import SAMPLE
from triggers.accept import builtin_source

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
# Each count reads the first rows of one partial index. Ages use the database's clock and are 0 if nothing waits.
MOST = 100_000  # rows that one of them counts
COUNT = "SELECT count(*) FROM (SELECT FROM {rows} LIMIT %(most)s::int) waiting"
EVENTS = COUNT.format(rows="triggers_event WHERE dispatched_at IS NULL ORDER BY seq")
OLDEST_EVENT = """
SELECT extract(epoch FROM clock_timestamp() - received_at)::float8
FROM triggers_event WHERE dispatched_at IS NULL ORDER BY seq LIMIT 1
"""
REDISPATCHES = COUNT.format(rows="triggers_redispatch WHERE dispatched_at IS NULL ORDER BY seq")
# In the order of its index: for the first rows of many, PostgreSQL may read the table, where these may stand last.
RUNS = " UNION ALL ".join(
    f"SELECT '{status}', '{place}', ({COUNT.format(rows=f'runs_run WHERE {rows}')})"  # noqa: S608  (our own parts)
    for status, place, rows in (
        ("queued", "ready", "status = 'queued' AND ready_at IS NOT NULL ORDER BY queue, agent, priority"),
        ("queued", "due", "status = 'queued' AND due_at IS NOT NULL ORDER BY due_at"),
        ("queued", "blocked", f"{BLOCKED} AND key IS NOT NULL ORDER BY key, seq"),
        ("running", "", "status = 'running'"),
        ("waiting", "", "status = 'waiting' ORDER BY id"),
        ("uncertain", "", "status = 'uncertain' ORDER BY id"),
        ("failed", "", "status = 'failed' ORDER BY id"),
    )
)
OUTBOX = COUNT.format(
    rows="runs_outboxmessage WHERE available_at <= (SELECT clock_timestamp()) ORDER BY available_at, id"
)
WAKEUPS = COUNT.format(
    rows="runs_outboxmessage WHERE topic = 'wakeup' AND available_at > (SELECT clock_timestamp()) ORDER BY topic, available_at, id"
)
OUTBOX_LATENESS = """
SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(available_at)), 0), 0)::float8 FROM runs_outboxmessage
"""
PROCESSES = "SELECT kind, count(*) FILTER (WHERE stopped_at IS NULL) FROM runs_worker GROUP BY kind"
SEEN = "SELECT kind, extract(epoch FROM clock_timestamp() - max(seen_at))::float8 FROM runs_worker GROUP BY kind"
SCHEDULE_LATENESS = """
SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(due_at)), 0), 0)::float8
FROM triggers_schedule WHERE due_at IS NOT NULL AND NOT stale
"""
NEXT_DUE = """
SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 FROM triggers_schedule WHERE due_at IS NOT NULL AND NOT stale
HAVING min(due_at) IS NOT NULL
"""
# Only the newest rows of tables that may be long.
SKIPS = """
SELECT reason, sum(coalesce(count, 1)) FROM (
  SELECT reason, count FROM triggers_skip WHERE created_at > (SELECT clock_timestamp()) - interval '1 hour'
  ORDER BY created_at DESC LIMIT 10000) newest
GROUP BY reason
"""
FIRES = """
SELECT count(*) FILTER (WHERE source_id = %s::uuid) FROM (
  SELECT source_id FROM triggers_event WHERE id >= %s::uuid ORDER BY id DESC LIMIT 100000) newest
"""
REFUSED = """
SELECT source.slug, refused.status::text, sum(refused.count)
FROM triggers_refuseddelivery refused JOIN triggers_source source ON source.id = refused.source_id
WHERE refused.hour > (SELECT clock_timestamp()) - interval '1 day' GROUP BY source.slug, refused.status
"""
LAGS = """
SELECT source.slug, reading.lag FROM triggers_reading reading JOIN triggers_source source ON source.id = reading.source_id
WHERE source.enabled AND reading.lag IS NOT NULL
"""
OF_LAST_DAY = """
SELECT source.slug, kept.count FROM triggers_source source CROSS JOIN LATERAL (
  SELECT count(*) AS count FROM (
    SELECT FROM {table} WHERE source_id = source.id AND {at} > (SELECT clock_timestamp()) - interval '1 day'
    ORDER BY {at} DESC LIMIT 10000) newest
  HAVING count(*) > 0) kept
"""
POISON = OF_LAST_DAY.format(table="triggers_poisonmessage", at="last_at")
GAPS = OF_LAST_DAY.format(table="triggers_sourcegap", at="at")
SLOT_BYTES = """
SELECT source.slug, watched.retained FROM triggers_watchedslot watched JOIN triggers_source source ON source.id = watched.source_id
WHERE watched.retained IS NOT NULL
"""
NOTIFICATIONS_UNPLANNED = COUNT.format(rows="runs_notification WHERE planned_at IS NULL ORDER BY created_at")
DELIVERIES = """
SELECT status, count(*) FROM (
  SELECT status FROM runs_delivery WHERE id >= %s::uuid ORDER BY id DESC LIMIT 100000) newest
GROUP BY status
"""
DELIVERIES_LATE = """
SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(due_at)), 0), 0)::float8
FROM runs_delivery WHERE status IN ('pending', 'held', 'sending')
"""
EVENT_DELIVERIES = """
SELECT status, count(*) FROM (
  SELECT status FROM triggers_eventdelivery WHERE id >= %s::uuid ORDER BY id DESC LIMIT 100000) newest
GROUP BY status
"""
EVENT_DELIVERIES_LATE = """
SELECT coalesce(greatest(extract(epoch FROM clock_timestamp() - min(due_at)), 0), 0)::float8
FROM triggers_eventdelivery WHERE status IN ('pending', 'sending')
"""
SUBSCRIPTIONS = """
SELECT CASE WHEN NOT enabled THEN 'disabled' WHEN failing_since IS NULL THEN 'enabled' ELSE 'failing' END, count(*)
FROM triggers_subscription GROUP BY 1
"""
INCIDENTS = """
SELECT kind, count(*) FROM runs_incident WHERE opened_at IS NOT NULL AND closed_at IS NULL GROUP BY kind
"""
PAUSED_TRIGGERS = "SELECT count(*) FROM triggers_trigger WHERE enabled AND paused_at IS NOT NULL"


class DatabaseCollector(Collector):
    """All gauges, read from the database now, and the totals."""

    def collect(self) -> Iterator[Metric]:
        most, now = {"most": MOST}, read_situation()
        yield _gauge("wakeful_events_undispatched", "Events that are not dispatched yet", fetch(EVENTS, most))
        yield _gauge(
            "wakeful_events_undispatched_age_seconds",
            "Age of the oldest event that is not dispatched yet",
            fetch(OLDEST_EVENT) or [(0,)],
        )
        yield _gauge(
            "wakeful_redispatches_undispatched",
            "Replayed and resumed events that are not dispatched yet",
            fetch(REDISPATCHES, most),
        )
        yield _gauge(
            "wakeful_runs",
            f"Live and failed runs, at most {MOST:,} of each; a queued run is ready, due later, or blocked by its key",
            fetch(RUNS, most),
            labels=("status", "place"),
        )
        yield _gauge(
            "wakeful_runs_ready_age_seconds",
            f"How long the oldest ready run of a queue has waited for a worker, among the first {SAMPLE:,} of each agent",
            [(queue.name, queue.oldest_seconds) for queue in now.queues if queue.ready],
            labels=("queue",),
        )
        yield _gauge("wakeful_outbox_messages", "Outbox messages that wait to be handled", fetch(OUTBOX, most))
        yield _gauge("wakeful_wakeups_ahead", "Wakes that runs have set for later", fetch(WAKEUPS, most))
        yield _gauge("wakeful_outbox_late_seconds", "How late the most overdue of them is", fetch(OUTBOX_LATENESS))
        yield _gauge("wakeful_processes", "Processes that have not stopped", fetch(PROCESSES), labels=("kind",))
        yield _gauge(
            "wakeful_process_seen_seconds", "Time since any process of a kind was seen", fetch(SEEN), labels=("kind",)
        )
        yield _gauge("wakeful_schedule_late_seconds", "How late the most overdue schedule is", fetch(SCHEDULE_LATENESS))
        yield _gauge("wakeful_schedule_next_seconds", "Time until the next schedule is due", fetch(NEXT_DUE))
        yield _gauge(
            "wakeful_schedule_fires",
            "Events that schedules made in the last minute, among the newest 100,000 events",
            fetch(FIRES, [builtin_source("schedule"), first_id_at(database_now() - MINUTE)]),
        )
        yield _gauge(
            "wakeful_schedule_skips",
            "Nominal times that were skipped in the last hour, among the newest 10,000 stretches of them",
            fetch(SKIPS),
            labels=("reason",),
        )
        yield _gauge(
            "wakeful_deliveries_refused",
            "Deliveries that a webhook source answered with an error in the last day",
            fetch(REFUSED),
            labels=("source", "status"),
        )
        yield _gauge(
            "wakeful_source_lag",
            "Messages that wait at a broker or feed, as last known",
            fetch(LAGS),
            labels=("source",),
        )
        yield _gauge(
            "wakeful_messages_poison",
            "Messages that could not become events in the last day, among the newest 10,000",
            fetch(POISON),
            labels=("source",),
        )
        yield _gauge(
            "wakeful_source_gaps",
            "Gaps of the last day, among the newest 10,000: messages that were lost before they were read",
            fetch(GAPS),
            labels=("source",),
        )
        yield _gauge(
            "wakeful_source_slot_bytes",
            "WAL that the server of a source keeps for its replication slot, as last seen",
            fetch(SLOT_BYTES),
            labels=("source",),
        )
        yield _gauge("wakeful_triggers_paused", "Enabled triggers that are paused", fetch(PAUSED_TRIGGERS))
        yield _gauge("wakeful_incidents_open", "Incidents that are open", fetch(INCIDENTS), labels=("kind",))
        yield _gauge(
            "wakeful_notifications_unplanned",
            "Notifications that no recipient was found for yet",
            fetch(NOTIFICATIONS_UNPLANNED, most),
        )
        yield _gauge(
            "wakeful_notification_deliveries",
            "Deliveries of notifications that were made in the last day, among the newest 100,000",
            fetch(DELIVERIES, [first_id_at(database_now() - DAY)]),
            labels=("status",),
        )
        yield _gauge(
            "wakeful_notification_late_seconds", "How late the most overdue delivery is", fetch(DELIVERIES_LATE)
        )
        yield _gauge(
            "wakeful_event_deliveries",
            "Deliveries of events to subscriptions that were made in the last day, among the newest 100,000",
            fetch(EVENT_DELIVERIES, [first_id_at(database_now() - DAY)]),
            labels=("status",),
        )
        yield _gauge(
            "wakeful_event_delivery_late_seconds",
            "How late the most overdue of them is",
            fetch(EVENT_DELIVERIES_LATE),
        )
        yield _gauge(
            "wakeful_subscriptions",
            "Subscriptions that are enabled, failing (the last attempts failed), or disabled",
            fetch(SUBSCRIPTIONS),
            labels=("state",),
        )
        yield from _spending()
        yield from _of_situation(now)
        yield from totals()


def _spending() -> Iterator[GaugeMetricFamily]:
    spent = spent_today()
    labels = ("agent", "trigger", "model")
    yield _gauge(
        "wakeful_llm_spent_today_usd",
        "US dollars of recorded model requests since midnight UTC",
        [(one.agent, one.trigger, one.model, float(one.usd)) for one in spent],
        labels=labels,
    )
    yield _gauge(
        "wakeful_llm_tokens_today",
        "Tokens of recorded model requests since midnight UTC",
        [(one.agent, one.trigger, one.model, one.input_tokens + one.output_tokens) for one in spent],
        labels=labels,
    )
    yield _gauge(
        "wakeful_llm_requests_today",
        "Recorded model requests since midnight UTC",
        [(one.agent, one.trigger, one.model, one.requests) for one in spent],
        labels=labels,
    )
    caps = [cap for cap in current().values() if cap.period != "run"]
    named = ("scope", "name", "period", "measure")
    meanings = {
        "wakeful_budget_allowed": "The cap of each budget, with what was allowed on top of it in its current window",
        "wakeful_budget_spent": "Spent in the current window of each budget",
        "wakeful_budget_reserved": "Reserved in the current window of each budget by steps under way",
    }
    for name, meaning in meanings.items():
        of = name.rpartition("_")[2]
        rows = [(cap.scope, cap.name, cap.period, cap.measure, float(getattr(cap, of))) for cap in caps]
        yield _gauge(name, meaning, rows, labels=named)


def _of_situation(now: Situation) -> Iterator[GaugeMetricFamily]:
    yield _gauge(
        "wakeful_problem",
        "1 for each current problem; the Processes page describes it",
        [(problem.name, problem.severity.value, 1) for problem in problems(now)],
        labels=("name", "severity"),
    )
    yield _gauge(
        "wakeful_queue_paused",
        "1 while a queue is paused; * means all queues",
        [(queue.name, int(queue.is_paused)) for queue in now.queues],
        labels=("queue",),
    )
    yield _gauge(
        "wakeful_oldest_transaction_seconds",
        "Age of the oldest open transaction of this database",
        # No number where it cannot be read: 0 would mean that no transaction is open.
        []
        if OLDEST_TRANSACTION in now.unread
        else [(max((oldest.age for oldest in now[OLDEST_TRANSACTION]), default=0),)],
    )


registry = CollectorRegistry()
registry.register(DatabaseCollector())


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _gauge(name: str, meaning: str, rows: Iterable[tuple[Any, ...]], labels: tuple[str, ...] = ()) -> GaugeMetricFamily:
    """A gauge from rows of label values and a number."""
    gauge = GaugeMetricFamily(name, meaning, labels=labels)
    for *values, number in rows:
        gauge.add_metric(values, number)
    return gauge
