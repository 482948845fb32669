"""Counters and histograms of /metrics. Each scrape adds what is new to rows of `Total`, which only rise; so all processes return the
same numbers, whichever of them restarts, and retention takes nothing away.

What has ended, arrived or been paid is read once, in a portion per scrape, up to a horizon behind which no transaction can write any
more. A counter that is late is never wrong.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.db import DatabaseError, connection, transaction
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily

from agents.kernel.ids import first_id_at
from runs.db.sql import array_of, execute, fetch, fetch_column

log = structlog.get_logger(__name__)

Added = tuple[str, Sequence[str], float]  # metric, values of its labels, number

LOCK = "SELECT pg_try_advisory_xact_lock(22444, 60), set_config('statement_timeout', '5s', true)"
PORTION = 20_000  # rows of one table that one scrape reads
SECONDS = 1.0  # that one scrape reads portions of ended runs
NOTED_FOR = timedelta(hours=1)  # ends of runs are noted so long after a scrape
SETTLED = timedelta(seconds=5)  # so far the clocks of the processes that make ids may be apart
PATIENCE = timedelta(minutes=10)  # a transaction that is open for longer keeps no counter waiting
# What is older than this has been committed: no transaction that writes has begun before. An autovacuum worker writes no rows of ours.
# When it began is hidden for a session of another role, unless ours has pg_read_all_stats: the lock of `nextval` shows that it has recorded
# an event.
HORIZON = """
SELECT greatest(least(clock_timestamp(), min(began)) - %(settled)s::interval, clock_timestamp() - %(patience)s::interval)
FROM (
  SELECT CASE
    WHEN xact_start IS NOT NULL THEN xact_start
    WHEN pid IN (SELECT pid FROM pg_locks WHERE locktype = 'relation' AND relation = 'triggers_seq'::regclass AND granted) THEN '-infinity'
  END AS began
  FROM pg_stat_activity
  WHERE datname = current_database() AND backend_xid IS NOT NULL AND pid <> pg_backend_pid()
    AND backend_type IS DISTINCT FROM 'autovacuum worker') writing
"""
COUNTED_UNTIL = "SELECT place FROM config_counteduntil WHERE what = %s"
COUNTED = """
INSERT INTO config_counteduntil (what, place) VALUES (%s, %s) ON CONFLICT (what) DO UPDATE SET place = excluded.place
"""
NOTE_ENDS = """
SELECT setval('runs_ends_are_counted_until', extract(epoch FROM clock_timestamp() + %s::interval)::bigint)
"""
# Once, and no other session can: what is deleted has been added to the totals in the same transaction.
ENDED = """
WITH taken AS (
  DELETE FROM runs_uncountedend WHERE ctid = ANY(ARRAY(SELECT ctid FROM runs_uncountedend LIMIT %(portion)s::int))
  RETURNING agent, status, created_at, started_at, finished_at
), measured AS (
  SELECT 'wakeful_run_duration_seconds' AS metric, agent, extract(epoch FROM finished_at - started_at)::float8 AS seconds FROM taken
  UNION ALL
  SELECT 'wakeful_run_start_delay_seconds', agent, extract(epoch FROM started_at - created_at)::float8 FROM taken
)
SELECT 'wakeful_runs_finished', ARRAY[agent, status], count(*)::float8 FROM taken GROUP BY agent, status
UNION ALL
SELECT metric, ARRAY[agent, coalesce((%(names)s::text[])[number], '+Inf')], count(*) FROM (
  SELECT metric, agent, width_bucket(seconds - 1e-7, %(bounds)s::float8[]) + 1 AS number FROM measured WHERE seconds IS NOT NULL) one
GROUP BY metric, agent, number
UNION ALL
SELECT metric, ARRAY[agent, 'sum'], sum(greatest(seconds, 0)) FROM measured WHERE seconds IS NOT NULL GROUP BY metric, agent
"""
BOUNDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 21600)
NAMES = tuple(f"{bound:g}" for bound in BOUNDS)
ACCEPTED = """
WITH arrived AS (
  SELECT id, source_id FROM triggers_event WHERE id > %(since)s::uuid AND id < %(until)s::uuid ORDER BY id LIMIT %(portion)s::int)
SELECT source.slug, arrived.count, arrived.last, arrived.all FROM (
  SELECT source_id, count(*)::float8 AS count, (SELECT id::text FROM arrived ORDER BY id DESC LIMIT 1) AS last,
    (SELECT count(*) FROM arrived) AS all
  FROM arrived GROUP BY source_id) arrived
JOIN triggers_source source ON source.id = arrived.source_id
"""
# Rows of the same instant are read together: of a portion that is full, those of its last instant belong to the next.
PAID = """
WITH ended AS (
  SELECT run_id, kind, status, usage, epoch, ended_at FROM runs_step
  WHERE kind IN ('model', 'tool') AND ended_at >= %(since)s::timestamptz AND ended_at < %(until)s::timestamptz
  ORDER BY ended_at LIMIT %(portion)s::int
), portion AS (
  SELECT CASE WHEN count(*) < %(portion)s::int THEN %(until)s::timestamptz ELSE max(ended_at) END AS until FROM ended)
SELECT run.agent, coalesce(step.usage->>'model', ''), count(*)::float8,
  coalesce(sum((step.usage->>'input_tokens')::bigint), 0)::float8, coalesce(sum((step.usage->>'output_tokens')::bigint), 0)::float8,
  coalesce(sum((step.usage->>'cost')::numeric), 0)::float8
FROM ended step CROSS JOIN portion CROSS JOIN LATERAL (SELECT agent FROM runs_run WHERE id = step.run_id OFFSET 0) run
WHERE step.kind = 'model' AND (step.status = 'done' OR step.usage IS NOT NULL) AND step.epoch > 0 AND step.ended_at < portion.until
GROUP BY run.agent, 2
UNION ALL
SELECT NULL, until::text, 0, 0, 0, 0 FROM portion
"""
# Hours that are over rise no more: they are added to the totals. The others are read at each scrape, beside the totals.
HOURS_OVER = """
SELECT source.slug, refused.status::text, sum(refused.count)::float8
FROM triggers_refuseddelivery refused JOIN triggers_source source ON source.id = refused.source_id
WHERE refused.hour >= %(since)s::timestamptz AND refused.hour < %(until)s::timestamptz GROUP BY source.slug, refused.status
"""
HOUR = "SELECT date_trunc('hour', clock_timestamp() - %s::interval, 'UTC')::text"
ADD = """
INSERT INTO config_total AS total (metric, labels, value)
SELECT metric, ARRAY(SELECT jsonb_array_elements_text(labels)), value
FROM jsonb_to_recordset(%s::jsonb) AS added (metric text, labels jsonb, value float8)
ON CONFLICT (metric, labels) DO UPDATE SET value = total.value + excluded.value, changed_at = clock_timestamp()
"""
KNOWN = "SELECT DISTINCT labels[1] FROM config_total WHERE metric = %s"
MOST = 300  # agents, or sources, of one metric; the runs and deliveries of others are counted together
OTHERS = "(others)"
TOTALS = """
SELECT metric, labels, value FROM config_total
UNION ALL
SELECT 'wakeful_refused_deliveries', ARRAY[source.slug, refused.status::text], sum(refused.count)::float8
FROM triggers_refuseddelivery refused JOIN triggers_source source ON source.id = refused.source_id
WHERE refused.hour >= (SELECT place::timestamptz FROM config_counteduntil WHERE what = 'refused')
GROUP BY source.slug, refused.status
"""


@dataclass(frozen=True)
class Counter:
    name: str  # without _total
    meaning: str
    labels: tuple[str, ...]


COUNTERS = (
    Counter(
        "wakeful_runs_finished",
        "Runs that ended, since the first scrape: succeeded, failed for good, or cancelled. A run that is requeued ends once more. "
        "Without a scrape for an hour, and at a crash of PostgreSQL, ends since the last scrape are missing",
        ("agent", "status"),
    ),
    Counter(
        "wakeful_events_accepted",
        "Events recorded since the first scrape, by the source they came from; one that is sent again is counted once. Some seconds late, "
        "as is what long transactions write; up to ten minutes while a transaction of another role is open that has recorded an event, "
        "unless the role of the web process has pg_read_all_stats",
        ("source",),
    ),
    Counter(
        "wakeful_refused_deliveries",
        "Deliveries that a webhook source answered with an error, by the status of the answer, since the first scrape",
        ("source", "status"),
    ),
    Counter(
        "wakeful_llm_requests", "Recorded model requests since the first scrape; some seconds late", ("agent", "model")
    ),
    Counter(
        "wakeful_llm_spent_usd",
        "US dollars of recorded model requests since the first scrape; those without a price count nothing",
        ("agent", "model"),
    ),
    Counter(
        "wakeful_llm_tokens",
        "Tokens of recorded model requests since the first scrape",
        ("agent", "model", "direction"),
    ),
)
HISTOGRAMS = (
    Counter(
        "wakeful_run_duration_seconds",
        "From the first start of a run to its end, waits and retries included, of the runs of wakeful_runs_finished_total that started",
        ("agent",),
    ),
    Counter(
        "wakeful_run_start_delay_seconds",
        "From the making of a run, at its dispatch, to its first start, of the runs of wakeful_runs_finished_total that started. "
        "Time that its rate or its key demands is part of it",
        ("agent",),
    ),
)  # fmt: skip


def totals() -> Iterator[CounterMetricFamily | HistogramMetricFamily]:
    _count()
    found: dict[str, dict[tuple[str, ...], float]] = defaultdict(lambda: defaultdict(float))
    for metric, labels, value in fetch(TOTALS):
        found[metric][tuple(labels)] += value
    for counter in COUNTERS:
        family = CounterMetricFamily(counter.name, counter.meaning, labels=counter.labels)
        for labels, value in sorted(found[counter.name].items()):
            family.add_metric(labels, value)
        yield family
    for histogram in HISTOGRAMS:
        buckets = HistogramMetricFamily(histogram.name, histogram.meaning, labels=histogram.labels)
        values = found[histogram.name]
        for agent in sorted({agent for agent, _ in values}):
            buckets.add_metric([agent], _cumulative(agent, values), values.get((agent, "sum"), 0.0))
        yield buckets


def _cumulative(agent: str, values: dict[tuple[str, ...], float]) -> list[tuple[str, float]]:
    buckets, count = list[tuple[str, float]](), 0.0
    for name in (*NAMES, "+Inf"):
        count += values.get((agent, name), 0.0)
        buckets.append((name, count))
    return buckets


def _count() -> None:
    """Add what is new. Another scrape that does so at this moment is not waited for; nor does a part that fails stop the others, or the
    scrape: a server that only reads returns the totals as they stand."""
    for part in (_ended, _accepted, _paid, _refused):
        try:
            with transaction.atomic():
                [(is_alone, _)] = fetch(LOCK)
                if is_alone:
                    part()
        except DatabaseError as error:
            log.warning("metrics.not_counted", part=part.__name__.strip("_"), reason=str(error).strip())
            if not connection.is_usable():
                return


def _ended() -> None:
    """Several portions, for a time: where more runs end between two scrapes than one portion takes, the table must not grow."""
    fetch(NOTE_ENDS, [NOTED_FOR])
    until = time.monotonic() + SECONDS
    ended = float(PORTION)
    while ended >= PORTION and time.monotonic() < until:
        found = fetch(ENDED, {"portion": PORTION, "names": array_of(NAMES), "bounds": array_of(BOUNDS)})
        _add(found)
        ended = sum(count for metric, _, count in found if metric == "wakeful_runs_finished")


def _accepted() -> None:
    until = str(first_id_at(_horizon()))
    since = _counted_until("events", until)
    found = fetch(ACCEPTED, {"since": since, "until": until, "portion": PORTION})
    _add(("wakeful_events_accepted", [slug], count) for slug, count, _, _ in found)
    is_full = bool(found) and found[0][3] >= PORTION
    execute(COUNTED, ["events", found[0][2] if is_full else max(since, until)])


def _paid() -> None:
    horizon = _horizon()
    since = datetime.fromisoformat(_counted_until("requests", horizon.isoformat()))
    if since >= horizon:
        return
    place = horizon.isoformat()
    added: list[Added] = []
    for agent, model, requests, sent, received, usd in fetch(
        PAID, {"since": since, "until": horizon, "portion": PORTION}
    ):
        if agent is None:
            place = datetime.fromisoformat(model).isoformat()
            continue
        added += [
            ("wakeful_llm_requests", [agent, model], requests),
            ("wakeful_llm_spent_usd", [agent, model], usd),
            ("wakeful_llm_tokens", [agent, model, "input"], sent),
            ("wakeful_llm_tokens", [agent, model, "output"], received),
        ]
    _add(added)
    execute(COUNTED, ["requests", place])


def _refused() -> None:
    [(until,)] = fetch(HOUR, [PATIENCE])
    since = _counted_until("refused", until)
    found = fetch(HOURS_OVER, {"since": since, "until": until})
    _add(("wakeful_refused_deliveries", [slug, status], count) for slug, status, count in found)
    if datetime.fromisoformat(since) < datetime.fromisoformat(until):
        execute(COUNTED, ["refused", until])


def _horizon() -> datetime:
    [(horizon,)] = fetch(HORIZON, {"settled": SETTLED, "patience": PATIENCE})
    found: datetime = horizon
    return found


def _counted_until(what: str, otherwise: str) -> str:
    """Up to where the table has been counted; at first, where counting begins."""
    for (place,) in fetch(COUNTED_UNTIL, [what]):
        return str(place)
    execute(COUNTED, [what, otherwise])
    return otherwise


def _add(added: Iterable[Added]) -> None:
    sums: dict[tuple[str, ...], float] = defaultdict(float)
    known: dict[str, set[str]] = {}
    for metric, (first, *others), value in added:
        if metric not in known:
            known[metric] = set(fetch_column(KNOWN, [metric]))
        names = known[metric]
        if first not in names and len(names) >= MOST:
            first = OTHERS
        names.add(first)
        sums[metric, first, *others] += value
    if sums:
        rows = [{"metric": metric, "labels": labels, "value": value} for (metric, *labels), value in sums.items()]
        execute(ADD, [json.dumps(rows)])
