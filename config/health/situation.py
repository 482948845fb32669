"""The situation of the installation: its processes, the work that waits and for how long, and obstacles.

One statement, because the dispatcher runs it again and again; it only reads the heads of queues and the ends of indexes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import DatabaseError

from config.health.signs import Errors, Rows, read, signs
from runs.outbox import EVERYTHING_IS_PAUSED
from runs.ports import known_topics, ports
from runs.processes.alive import IS_ALIVE
from runs.queues.state import QUEUES, QueueState, parameters
from runs.sign import COUNTED, LATE, Sign, is_raised
from triggers.dispatch.failing_triggers import COUNTED as ERRORS_COUNTED
from triggers.dispatch.failing_triggers import ERRING, LATELY
from triggers.dispatch.failures import ABSENCES, EVENTS, WINDOWS
from triggers.dispatch.run_failures import SAID_OF_PAUSE

R = TypeVar("R")
T = TypeVar("T")

STOPPED_SHOWN = 20
BROKEN_SHOWN = 20  # schedules, sources, triggers; one more is read, to see whether there are more
PAUSED_SHOWN = 1000
SLOT_TRANSACTIONS, SLOT_BYTES = 1_000_000, 2**30  # the maximum that an inactive replication slot may retain
OFFER_FAILURES = 2  # failures in a row to move an offer; more are a problem
NEAR_CAP = 0.8  # share of a cap from which on its budget is a problem

# Undelivered messages are retried soon, so they sort before wakes in the far future. Reads only the head of a long outbox.
FIRST_MESSAGES = "(SELECT * FROM runs_outboxmessage ORDER BY available_at, id LIMIT %(counted)s::int) first"
# While all queues are paused, messages to the broker wait on purpose.
KNOWN_TOPICS = f"""(SELECT topic FROM unnest(%(topics)s::text[]) AS topic
    WHERE NOT (topic = ANY(%(held_topics)s::text[]) AND {EVERYTHING_IS_PAUSED})) known"""  # noqa: S608
# Editing one calendar may mark a million schedules as edited.
EDITED = "(SELECT edited_at FROM triggers_schedule WHERE stale LIMIT %(counted)s::int) edited"
LOOK = f"""
WITH RECURSIVE topics(topic) AS (
  (SELECT topic FROM runs_outboxmessage ORDER BY topic LIMIT 1)
  UNION ALL
  SELECT (SELECT topic FROM runs_outboxmessage message WHERE message.topic > topics.topic ORDER BY topic LIMIT 1)
  FROM topics WHERE topics.topic IS NOT NULL
)
SELECT json_build_object(
  'processes', (SELECT coalesce(json_agg(shown), '[]') FROM (
    SELECT worker.id, worker.kind, worker.host, worker.pid, worker.version, worker.concurrency, worker.agents, worker.queues,
      {IS_ALIVE} AS alive, worker.draining_at IS NOT NULL AS draining, worker.stopped_reason,
      (SELECT json_object_agg(name, json_build_object('error', trouble->>'error',
         'lasted', extract(epoch FROM clock_timestamp() - (trouble->>'since')::timestamptz)::float8))
       FROM jsonb_each(worker.troubles) AS each(name, trouble)) AS troubles,
      extract(epoch FROM clock_timestamp() - worker.started_at)::float8 AS started,
      extract(epoch FROM clock_timestamp() - worker.seen_at)::float8 AS seen,
      extract(epoch FROM clock_timestamp() - worker.stopped_at)::float8 AS stopped
    FROM runs_worker worker
    WHERE worker.stopped_at IS NULL OR worker.id IN (
      SELECT id FROM runs_worker WHERE stopped_at > clock_timestamp() - interval '1 day'
      ORDER BY stopped_at DESC LIMIT %(stopped)s::int)
    ORDER BY worker.kind, worker.started_at) shown),
  'unseen', (SELECT coalesce(json_object_agg(kind, age), '{{}}') FROM (
    SELECT kind, extract(epoch FROM clock_timestamp() - max(seen_at))::float8 AS age FROM runs_worker GROUP BY kind) seen),
  'queues', (SELECT json_agg(queue) FROM ({QUEUES}) queue),
  'undispatched', (SELECT count(*) FROM (SELECT FROM triggers_event WHERE dispatched_at IS NULL LIMIT %(counted)s::int) waiting),
  'undispatched_age', (SELECT extract(epoch FROM clock_timestamp() - received_at)::float8
    FROM triggers_event WHERE dispatched_at IS NULL ORDER BY seq LIMIT 1),
  'outbox', (SELECT count(*) FROM (SELECT FROM {KNOWN_TOPICS} CROSS JOIN LATERAL (
    SELECT FROM runs_outboxmessage WHERE topic = known.topic AND available_at <= (SELECT clock_timestamp())
    LIMIT %(counted)s::int) message LIMIT %(counted)s::int) waiting),
  'outbox_late', (SELECT extract(epoch FROM clock_timestamp() - min(
    (SELECT min(available_at) FROM runs_outboxmessage WHERE topic = known.topic)))::float8 FROM {KNOWN_TOPICS}),
  'unknown_topics', (SELECT coalesce(json_object_agg(topic, late), '{{}}') FROM (
    SELECT topic, (SELECT extract(epoch FROM clock_timestamp() - min(available_at))::float8
      FROM runs_outboxmessage WHERE topic = topics.topic) AS late
    FROM topics WHERE topic <> ALL (%(topics)s::text[])) unknown WHERE late > 0),
  'undelivered', (SELECT count(*) FROM (
    SELECT FROM {FIRST_MESSAGES} WHERE last_error <> '') waiting),
  'undelivered_age', (SELECT extract(epoch FROM clock_timestamp() - min(created_at))::float8 FROM {FIRST_MESSAGES}
    WHERE last_error <> ''),
  'delivery_error', (SELECT left(last_error, 300) FROM {FIRST_MESSAGES} WHERE last_error <> '' ORDER BY id LIMIT 1),
  'schedules_late', (SELECT count(*) FROM (
    SELECT FROM triggers_schedule WHERE NOT stale AND due_at < (SELECT clock_timestamp()) - %(late)s::interval
    LIMIT %(counted)s::int) late),
  'schedule_age', (SELECT extract(epoch FROM clock_timestamp() - min(due_at))::float8 FROM triggers_schedule
    WHERE due_at IS NOT NULL AND NOT stale),
  'schedules_unsettled', (SELECT count(*) FROM {EDITED} WHERE edited_at < clock_timestamp() - %(late)s::interval),
  'unsettled_age', (SELECT extract(epoch FROM clock_timestamp() - min(edited_at))::float8 FROM {EDITED}),
  'broken', (SELECT coalesce(json_agg(broken), '[]') FROM (
    SELECT periodic.name, schedule.problem FROM triggers_schedule schedule
    JOIN django_celery_beat_periodictask periodic ON periodic.id = schedule.task_id
    WHERE schedule.rest = 'problem' AND periodic.enabled ORDER BY schedule.id LIMIT %(broken)s::int) broken),
  'transaction', (SELECT row_to_json(oldest) FROM (
    SELECT pid, coalesce(usename, '') AS "user", application_name AS application, coalesce(state, '') AS state,
      left(query, 200) AS query, '' AS prepared, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age
    FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND datname = current_database() AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
    UNION ALL
    SELECT 0, owner, '', 'prepared', '', gid, extract(epoch FROM clock_timestamp() - prepared)::float8
    FROM pg_prepared_xacts WHERE database = current_database()
    ORDER BY age DESC LIMIT 1) oldest),
  'slots', (SELECT coalesce(json_agg(slot ORDER BY slot.name), '[]') FROM (
    SELECT slot_name AS name, greatest(age(xmin), age(catalog_xmin), 0) AS transactions,
      coalesce(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn), 0)::bigint AS bytes
    FROM pg_replication_slots WHERE NOT active) slot
    WHERE slot.transactions > %(slot_transactions)s::bigint OR slot.bytes > %(slot_bytes)s::bigint)
) AS first, json_build_object(  -- one call takes 100 arguments at most
  'paused', (SELECT coalesce(json_agg(paused), '[]') FROM (
    SELECT slug, paused_reason AS reason, extract(epoch FROM clock_timestamp() - paused_at)::float8 AS seconds
    FROM triggers_trigger WHERE enabled AND paused_at IS NOT NULL AND paused_reason LIKE %(by_failures)s
    ORDER BY {is_raised("'trigger-paused:' || triggers_trigger.slug")} DESC, slug LIMIT %(paused)s::int) paused),
  'incidents', (SELECT json_build_object('count', count(*), 'names', coalesce((array_agg(name ORDER BY id DESC))[:5], '{{}}'),
      'untold', count(*) FILTER (
        WHERE told = '' AND tell_at IS NULL AND opened_at > (SELECT clock_timestamp()) - interval '1 hour'))
    FROM (SELECT id, kind || ' ' || name AS name, told, tell_at, opened_at FROM runs_incident
          WHERE opened_at IS NOT NULL AND closed_at IS NULL ORDER BY id DESC LIMIT %(counted)s::int) incident),
  'failing_sources', (SELECT coalesce(json_agg(DISTINCT subject), '[]') FROM runs_incident
    WHERE kind = 'source' AND in_a_row > 0),
  'erring', (SELECT coalesce(json_agg(erring), '[]') FROM ({ERRING}) erring),
  'stops', (SELECT coalesce(json_agg(stop), '[]') FROM (
    SELECT agent, stopped_by AS by, reason, extract(epoch FROM clock_timestamp() - stopped_at)::float8 AS seconds
    FROM runs_agentstop ORDER BY agent LIMIT %(broken)s::int) stop),
  'uncertain', (SELECT count(*) FROM (SELECT FROM runs_run WHERE status = 'uncertain' LIMIT %(counted)s::int) parked),
  'looks', (SELECT json_build_object('owed', count(*), 'age', extract(epoch FROM clock_timestamp() - min(created_at))::float8,
      'error', min(left(look_error, 300)))
    FROM (SELECT created_at, look_error FROM runs_wait
          WHERE status = 'open' AND looked_at IS NULL AND kind IN ('event', 'children') AND look_failures > 1
          LIMIT %(counted)s::int) failed),
  'budgets', (SELECT coalesce(json_agg(budget), '[]') FROM (
    SELECT budget.id, budget.scope, budget.name, budget.period, budget.measure, win.spent::float8 AS spent,
      (budget.cap + win.extra)::float8 AS allowed
    FROM runs_budgetwindow win JOIN runs_budget budget ON budget.id = win.budget_id
    WHERE win.ends_at > (SELECT clock_timestamp())
      AND budget.cap IS NOT NULL AND win.spent >= (budget.cap + win.extra) * %(near)s::numeric
    ORDER BY {is_raised("'budget:' || budget.id")} DESC, budget.id LIMIT %(broken)s::int) budget),
  'budget_waits', (SELECT json_build_object('count', count(*), 'reason', (array_agg(reason ORDER BY id))[1],
      'age', extract(epoch FROM clock_timestamp() - min(created_at))::float8)
    FROM (SELECT id, created_at, asked->>'reason' AS reason FROM runs_wait WHERE status = 'open' AND kind = 'budget'
          ORDER BY id LIMIT %(counted)s::int) waiting),
  'unreachable', (SELECT coalesce(json_agg(one), '[]') FROM (
    SELECT recipient.name, recipient.address, second.name AS second,
      EXISTS (SELECT FROM runs_recipient WHERE gets_all AND active AND id <> recipient.id) AS others,
      extract(epoch FROM clock_timestamp() - recipient.failing_since)::float8 AS seconds,
      (SELECT left(error, 300) FROM runs_delivery WHERE recipient_id = recipient.id AND status = 'failed'
       ORDER BY id DESC LIMIT 1) AS error
    FROM runs_recipient recipient LEFT JOIN runs_recipient second ON second.id = recipient.second_id AND second.active
    WHERE recipient.failing_since IS NOT NULL AND recipient.active
    ORDER BY {is_raised("'unreachable:' || recipient.name")} DESC, recipient.name LIMIT %(broken)s::int) one),
  'subscriptions', (SELECT coalesce(json_agg(one), '[]') FROM (
    SELECT slug, address, disabled_reason, left(error, 300) AS error,
      extract(epoch FROM clock_timestamp() - failing_since)::float8 AS seconds
    FROM triggers_subscription WHERE disabled_reason <> '' OR enabled AND failing_since IS NOT NULL
    ORDER BY {is_raised("'subscription-disabled:' || slug")} DESC, {is_raised("'subscription-failing:' || slug")} DESC,
      disabled_reason = '', slug LIMIT %(broken)s::int) one),
  'unread_inboxes', (SELECT coalesce(json_agg(one), '[]') FROM (
    SELECT recipient.name, recipient.address FROM runs_recipient recipient
    WHERE recipient.channel = 'inbox' AND recipient.active AND NOT EXISTS (
      SELECT FROM auth_user WHERE 'inbox:' || username = recipient.address AND is_active AND is_staff)
    ORDER BY {is_raised("'unread-inbox:' || recipient.name")} DESC, recipient.name LIMIT %(broken)s::int) one),
  'unknown_deliveries', (SELECT count(*) FROM (
    SELECT FROM runs_delivery WHERE status = 'unknown' LIMIT %(counted)s::int) unknown),
  'prompt_agents', (SELECT coalesce(json_agg(json_build_object('name', agent.name, 'is_deleted', agent.deleted_at IS NOT NULL,
      'tools', CASE jsonb_typeof(version.definition->'tools') WHEN 'array' THEN version.definition->'tools' ELSE '[]' END)
      ORDER BY agent.name), '[]')
    FROM agents_promptagent agent JOIN agents_promptagentversion version
      ON version.agent_id = agent.id AND version.number = agent.newest),
  'unknown_names', (SELECT coalesce(json_agg(name), '[]') FROM (
    SELECT name FROM (
      SELECT DISTINCT name FROM (
        SELECT name FROM runs_delivery WHERE recipient_id IS NULL AND status = 'suppressed' AND reason LIKE 'unknown recipient%%'
          AND created_at > (SELECT clock_timestamp()) - interval '1 day' LIMIT %(counted)s::int) lately) unknown
    WHERE NOT EXISTS (SELECT FROM runs_recipient known WHERE known.name = unknown.name)
      AND NOT EXISTS (SELECT FROM runs_recipientgroup known WHERE known.name = unknown.name)
    ORDER BY {is_raised("'unknown-recipient:' || unknown.name")} DESC, name LIMIT %(broken)s::int) names),
  'undispatchable', (SELECT coalesce(json_agg(alarm), '[]') FROM (
    SELECT name, text, remedy, extract(epoch FROM clock_timestamp() - began_at)::float8 AS age
    FROM runs_alarm WHERE ended_at IS NULL AND name = ANY(%(dispatch_alarms)s::text[]) ORDER BY name) alarm),
  'unmoved', (SELECT coalesce(json_agg(unmoved), '[]') FROM (
    SELECT trigger.slug, offer.outcome, offer.drop, left(offer.error, 300) AS error
    FROM triggers_offer offer JOIN triggers_trigger trigger ON trigger.id = offer.trigger_id
    WHERE offer.failures > %(offer_failures)s::int
    ORDER BY {is_raised("'offer:' || trigger.slug || ':' || offer.outcome")} DESC, trigger.slug, offer.outcome
    LIMIT %(broken)s::int) unmoved),
  'stuck_replays', (SELECT coalesce(json_agg(replay), '[]') FROM (
    SELECT id, left(error, 300) AS error FROM triggers_replay
    WHERE status IN ('running', 'cancelling') AND failures > %(offer_failures)s::int ORDER BY id LIMIT %(broken)s::int) replay),
  'clocks', (SELECT coalesce(json_object_agg(host, apart ORDER BY host), '{{}}') FROM (
    SELECT worker.host, max(worker.troubles->'clock'->>'error') AS apart FROM runs_worker worker
    WHERE {IS_ALIVE} AND worker.troubles->'clock' IS NOT NULL GROUP BY worker.host) wrong),
  'failover', (SELECT row_to_json(primary_) FROM (
    SELECT previous AS was, identity AS now, noticed_at::text, known_until::text,
      extract(epoch FROM clock_timestamp() - noticed_at)::float8 AS age
    FROM runs_primary WHERE previous <> '' AND noticed_at > clock_timestamp() - interval '1 day') primary_),
  'alarms', (SELECT coalesce(json_agg(name), '[]') FROM runs_alarm WHERE ended_at IS NULL)
) AS second
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process; `started`, `seen` and `stopped` are seconds ago. `troubles`: its current problems by name, each with its
    `error` and the seconds that it has `lasted`."""

    id: str
    kind: str
    host: str
    pid: int
    version: str
    concurrency: int
    agents: list[str]
    queues: list[str]
    alive: bool
    draining: bool
    started: float
    seen: float
    stopped: float | None
    stopped_reason: str
    troubles: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"{self.host}:{self.pid}"


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """The oldest open transaction of this database; a prepared transaction has a name and no process."""

    pid: int
    user: str
    application: str
    state: str
    query: str
    age: float
    prepared: str = ""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """An inactive replication slot, and the transactions and bytes of WAL that the server retains for it."""

    name: str
    transactions: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class NearCap:
    """A budget that has spent most of its current window."""

    id: int
    scope: str
    name: str
    period: str
    measure: str
    spent: float
    allowed: float


@dataclass(frozen=True, kw_only=True)
class BudgetWaits:
    """Runs that wait for budget: their count, and of the oldest the reason and the age in seconds."""

    count: int = 0
    reason: str | None = None
    age: float | None = None


@dataclass(frozen=True, kw_only=True)
class PausedTrigger:
    """A trigger that paused itself, so many seconds ago."""

    slug: str
    reason: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class OpenIncidents:
    """The count of open incidents and the newest names; `untold`: incidents of the last hour that opened without a
    message of their own.
    """

    count: int = 0
    names: list[str] = field(default_factory=list)
    untold: int = 0


@dataclass(frozen=True, kw_only=True)
class Erring:
    """A trigger at which events ended in an error in the last day: their count, and the reason and age in seconds of the
    last one."""

    slug: str
    count: int
    reason: str
    last: float


@dataclass(frozen=True, kw_only=True)
class Undispatchable:
    """An alarm of the dispatcher itself, which only the dispatcher ends; `age` in seconds."""

    name: str
    text: str
    remedy: str
    age: float


@dataclass(frozen=True, kw_only=True)
class StuckReplay:
    """A replay of many events whose next piece repeatedly fails."""

    id: str
    error: str


@dataclass(frozen=True, kw_only=True)
class Unmoved:
    """Decisions of a trigger that repeatedly fail to be dispatched again or dropped."""

    slug: str
    outcome: str
    drop: bool
    error: str


@dataclass(frozen=True, kw_only=True)
class Broken:
    """An enabled schedule that cannot fire."""

    name: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class LooksOwed:
    """Waits whose search for past events has failed more than once and is retried."""

    owed: int = 0
    age: float | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Failover:
    """A failover that was noticed in the last day: server and timeline of both primaries; `known_until`: the newest known
    commit of the old primary that the new one has."""

    was: str
    now: str
    noticed_at: str
    known_until: str | None
    age: float


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """A recipient whose last deliveries failed for good, for so many seconds; `second`: the one that gets them instead;
    `others`: whether without one there are others, which get all."""

    name: str
    address: str
    second: str | None
    others: bool
    seconds: float
    error: str | None


@dataclass(frozen=True, kw_only=True)
class FailingSubscription:
    """A subscription that Wakeful has disabled, for a reason, or whose attempts have failed for so many seconds."""

    slug: str
    address: str
    disabled_reason: str
    error: str
    seconds: float | None


@dataclass(frozen=True, kw_only=True)
class UnreadInbox:
    """A recipient that is the inbox of no user who may log in."""

    name: str
    address: str


@dataclass(frozen=True, kw_only=True)
class Stop:
    """An agent that an operator has stopped; `*` stands for all."""

    agent: str
    by: str
    reason: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class MadeAgent:
    """A prompt agent, with the tools that its newest version names."""

    name: str
    is_deleted: bool
    tools: list[str]


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Ages are in seconds, None if nothing waits; a negative lateness lies in the future."""

    processes: list[Process]
    unseen: Mapping[str, float]
    queues: list[QueueState]
    undispatched: int = 0
    undispatched_age: float | None = None
    outbox: int = 0
    outbox_late: float | None = None
    unknown_topics: Mapping[str, float] = field(default_factory=dict)
    undelivered: int = 0
    undelivered_age: float | None = None
    delivery_error: str | None = None
    schedules_late: int = 0
    schedule_age: float | None = None
    schedules_unsettled: int = 0
    unsettled_age: float | None = None
    broken: list[Broken] = field(default_factory=list)
    transaction: Transaction | None = None
    slots: list[Slot] = field(default_factory=list)
    paused: list[PausedTrigger] = field(default_factory=list)
    incidents: OpenIncidents = OpenIncidents()
    failing_sources: list[str] = field(default_factory=list)
    erring: list[Erring] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)
    uncertain: int = 0
    looks: LooksOwed = LooksOwed()
    budgets: list[NearCap] = field(default_factory=list)
    budget_waits: BudgetWaits = BudgetWaits()
    clocks: Mapping[str, str] = field(default_factory=dict)  # host → difference of its clock from the database's
    undispatchable: list[Undispatchable] = field(default_factory=list)
    unmoved: list[Unmoved] = field(default_factory=list)
    stuck_replays: list[StuckReplay] = field(default_factory=list)
    unreachable: list[Unreachable] = field(default_factory=list)
    subscriptions: list[FailingSubscription] = field(default_factory=list)
    unread_inboxes: list[UnreadInbox] = field(default_factory=list)
    unknown_deliveries: int = 0
    unknown_names: list[str] = field(default_factory=list)
    prompt_agents: list[MadeAgent] = field(default_factory=list)
    failover: Failover | None = None
    alarms: list[str]
    found: Rows = field(default_factory=dict)
    unread: Errors = field(default_factory=dict)

    def __getitem__(self, sign: Sign[R]) -> list[R]:
        """The rows of a sign; none if it cannot be read."""
        return [sign.row(**row) for row in self.found.get(sign, ())]

    def alive(self, kind: str) -> list[Process]:
        return [process for process in self.processes if process.kind == kind and process.alive]

    @property
    def everything(self) -> QueueState:
        """The entry for all queues."""
        return next(queue for queue in self.queues if queue.name == "*")

    @property
    def versions(self) -> dict[str, int]:
        """The number of live processes of each version."""
        found: dict[str, int] = {}
        for process in self.processes:
            if process.alive:
                found[process.version] = found.get(process.version, 0) + 1
        return found


def _parameters() -> dict[str, Any]:
    return {
        **parameters(),
        "topics": known_topics(),
        "held_topics": list(ports.outside),
        "stopped": STOPPED_SHOWN,
        "counted": COUNTED,
        "late": LATE,
        "broken": BROKEN_SHOWN + 1,
        "paused": PAUSED_SHOWN + 1,
        "by_failures": SAID_OF_PAUSE.format("%"),
        "lately": LATELY,
        "errors_counted": ERRORS_COUNTED,
        "slot_transactions": SLOT_TRANSACTIONS,
        "slot_bytes": SLOT_BYTES,
        "dispatch_alarms": [EVENTS, WINDOWS, ABSENCES],
        "offer_failures": OFFER_FAILURES,
        "near": NEAR_CAP,
    }


# Facts that have no sign of their own yet.
REST: Sign[dict[str, Any]] = Sign(name="rest", sql=LOOK, row=dict, parameters=_parameters, limit=None)


def look() -> Situation:
    """The situation now, by the database's clock."""
    found, unread = read([REST, *signs()])
    if REST in unread:
        raise DatabaseError(unread[REST])
    [parts] = found[REST]
    seen = {name: value for part in parts.values() for name, value in part.items()}
    return Situation(
        **{
            **seen,
            "found": found,
            "unread": unread,
            "processes": _each(Process, seen["processes"]),
            "queues": _each(QueueState, seen["queues"]),
            "slots": _each(Slot, seen["slots"]),
            "paused": _each(PausedTrigger, seen["paused"]),
            "incidents": OpenIncidents(**seen["incidents"]),
            "erring": _each(Erring, seen["erring"]),
            "broken": _each(Broken, seen["broken"]),
            "undispatchable": _each(Undispatchable, seen["undispatchable"]),
            "unmoved": _each(Unmoved, seen["unmoved"]),
            "stuck_replays": _each(StuckReplay, seen["stuck_replays"]),
            "unreachable": _each(Unreachable, seen["unreachable"]),
            "subscriptions": _each(FailingSubscription, seen["subscriptions"]),
            "unread_inboxes": _each(UnreadInbox, seen["unread_inboxes"]),
            "prompt_agents": _each(MadeAgent, seen["prompt_agents"]),
            "looks": LooksOwed(**seen["looks"]),
            "budgets": _each(NearCap, seen["budgets"]),
            "budget_waits": BudgetWaits(**seen["budget_waits"]),
            "stops": _each(Stop, seen["stops"]),
            "failover": Failover(**seen["failover"]) if seen["failover"] else None,
            "transaction": Transaction(**seen["transaction"]) if seen["transaction"] else None,
        }
    )


def _each(kind: type[T], rows: list[dict[str, Any]]) -> list[T]:
    return [kind(**row) for row in rows]
