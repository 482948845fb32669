"""One batch of events to runs: read in order, match, admit, enqueue; one serial transaction under one advisory lock."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction

from runs import keys
from runs.enqueue import NewRun, enqueue
from runs.models import NIL
from runs.policy import Policy
from runs.sql import execute, execute_many, fetch
from triggers.admission import Match, Refusal, admit, hold_or_stop, refuse
from triggers.matching import ExpressionError, Index, Rule, input_of, key_of, passes
from triggers.models import Decision, Trigger

log = structlog.get_logger(__name__)

NIL_REPLAY = UUID(NIL)
LOCK = (0x57AC, 1)  # the two-integer advisory locks are a space of their own, apart from the keys'

UNDISPATCHED = """
SELECT EXISTS (SELECT FROM triggers_event WHERE dispatched_at IS NULL)
    OR EXISTS (SELECT FROM triggers_redispatch WHERE dispatched_at IS NULL)
"""
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s::int, %s::int)"
READ = """
SELECT event.id, source.slug, event.type, event.subject, coalesce(event.time, event.received_at), event.target_id, event.root_id,
       event.depth, item.redispatch_id, item.trigger_id, item.replay_id
FROM (
  (SELECT seq, id AS event_id, NULL::bigint AS redispatch_id, NULL::uuid AS trigger_id, %(nil)s::uuid AS replay_id
   FROM triggers_event WHERE dispatched_at IS NULL ORDER BY seq LIMIT %(limit)s::int)
  UNION ALL
  (SELECT seq, event_id, id, trigger_id, replay_id
   FROM triggers_redispatch WHERE dispatched_at IS NULL ORDER BY seq LIMIT %(limit)s::int)
  ORDER BY seq LIMIT %(limit)s::int
) item
JOIN triggers_event event ON event.id = item.event_id
JOIN triggers_source source ON source.id = event.source_id
ORDER BY item.seq
"""
DATA = "SELECT id, data FROM triggers_event WHERE id = ANY(%s::uuid[])"
# `xmin` changes with every write by whatever way, so no edit of a trigger is missed, nor one reloaded for nothing.
FINGERPRINT = "SELECT count(*), coalesce(sum(hashtextextended(id::text || xmin::text, 0)), 0) FROM triggers_trigger"
DECIDE = """
INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason, run_id)
VALUES (%s::uuid, %s::uuid, %s::uuid, %s::text, %s::text, %s::uuid)
ON CONFLICT (event_id, trigger_id, replay_id) DO UPDATE
  SET outcome = excluded.outcome, reason = excluded.reason, run_id = excluded.run_id
  WHERE triggers_decision.outcome = 'held'
"""
MARK_EVENTS = "UPDATE triggers_event SET dispatched_at = clock_timestamp() WHERE id = ANY(%s::uuid[])"
MARK_REDISPATCHES = "UPDATE triggers_redispatch SET dispatched_at = clock_timestamp() WHERE id = ANY(%s::bigint[])"
RESUMED = """
UPDATE triggers_decision SET outcome = 'resumed', run_id = %s::uuid
WHERE event_id = %s::uuid AND trigger_id = %s::uuid AND replay_id = %s::uuid AND outcome = 'held'
"""


@dataclass(frozen=True, kw_only=True)
class Item:
    """An event to be dispatched, or dispatched again."""

    event_id: UUID
    source: str
    type: str
    subject: str
    time: datetime
    target_id: UUID | None
    root_id: UUID
    depth: int
    redispatch_id: int | None
    trigger_id: UUID | None
    replay_id: UUID

    @property
    def is_resumption(self) -> bool:
        return self.redispatch_id is not None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What became of one: events dispatched, events left because a key's lock was taken, and whether there may be more."""

    dispatched: int = 0
    left: int = 0
    standby: bool = False


class Rules:
    """The triggers, indexed; reloaded when the table has changed."""

    def __init__(self) -> None:
        self.fingerprint: Any = None
        self.index = Index([])

    def current(self) -> Index:
        [fingerprint] = fetch(FINGERPRINT)
        if fingerprint != self.fingerprint:
            self.index = Index(rule_of(trigger) for trigger in Trigger.objects.all())
            self.fingerprint = fingerprint
        return self.index


def rule_of(trigger: Trigger) -> Rule:
    try:
        policy, problem = Policy.load({**trigger.policy, "overlap": trigger.overlap}), ""
    except ValueError as error:
        policy, problem = Policy(), str(error)
    return Rule(
        id=trigger.id,
        slug=trigger.slug,
        agent=trigger.agent,
        source=trigger.source,
        types=tuple(trigger.types),
        filter=trigger.filter,
        input=trigger.input,
        key=trigger.key,
        overlap=trigger.overlap,
        policy=policy,
        problem=problem,
        enabled=trigger.enabled,
        paused_reason=trigger.paused_reason if trigger.is_paused else None,
    )


def has_undispatched() -> bool:
    return bool(fetch(UNDISPATCHED)[0][0])


def dispatch(rules: Rules) -> Batch:
    """Dispatch one batch; one that fails for its events' sake is dispatched event by event."""
    try:
        return dispatch_batch(rules, settings.WAKEFUL_DISPATCH_BATCH)
    except Exception as error:
        if will_pass(error):
            raise
        log.exception("dispatch.batch_refused")
        return dispatch_one_by_one(rules)


def will_pass(error: Exception) -> bool:
    """Is it the database's trouble rather than the events'? A row over one of its limits is the events'."""
    sqlstate = getattr(error.__cause__, "sqlstate", None) or ""
    return isinstance(error, (OperationalError, InterfaceError)) and not sqlstate.startswith("54")


@transaction.atomic
def dispatch_batch(rules: Rules, limit: int) -> Batch:
    if not _try_lock():
        return Batch(standby=True)
    items = read_items(limit)
    if not items:
        return Batch()
    return dispatch_items(items, rules.current())


def dispatch_one_by_one(rules: Rules) -> Batch:
    """Find the event that cannot be dispatched, and record that; the others go on."""
    dispatched = 0
    with transaction.atomic():
        if not _try_lock():
            return Batch(standby=True)
        index = rules.current()
        for item in read_items(settings.WAKEFUL_DISPATCH_BATCH):
            try:
                with transaction.atomic():
                    dispatched += dispatch_items([item], index).dispatched
            except Exception as error:
                if will_pass(error):
                    raise
                log.exception("dispatch.event_refused", event_id=str(item.event_id))
                refused = [
                    refuse(_bare(item, rule), Decision.Outcome.ERROR, repr(error)[:2000])
                    for rule in wanted_by(item, index)
                ]
                record(refused)
                mark_dispatched([item])
                dispatched += 1
    return Batch(dispatched=dispatched)


def dispatch_items(items: Sequence[Item], index: Index) -> Batch:
    """Match and admit in `seq` order. An event that needs a key whose lock is taken is left to the next batch, and with
    it every later event of its keys: the order per key is the order of arrival."""
    matches, decided = match_items(items, index)
    wanted = {match.key for found in matches.values() for match in found if match.key}
    locked = keys.try_lock(wanted)
    left = leave_behind(items, matches, wanted - locked)
    kept = [item for item in items if item not in left]

    admitted = admit((match for item in kept for match in matches[item]), keys.states(locked))
    runs = [one for one in admitted if isinstance(one, NewRun)]
    enqueue(runs)
    record([*(one for item in kept for one in decided[item]), *(one for one in admitted if isinstance(one, Refusal))])
    mark_resumed(kept, runs)
    mark_dispatched(kept)
    return Batch(dispatched=len(kept), left=len(left))


def match_items(items: Sequence[Item], index: Index) -> tuple[dict[Item, list[Match]], dict[Item, list[Refusal]]]:
    """For each event the matches that admission has to decide, and the refusals that are decided already."""
    wanted = {item: wanted_by(item, index) for item in items}
    data = read_data({item.event_id for item, rules in wanted.items() if any(rule.reads_data for rule in rules)})
    matches: dict[Item, list[Match]] = {item: [] for item in items}
    refusals: dict[Item, list[Refusal]] = {item: [] for item in items}
    for item, rules in wanted.items():
        event = cel_event(item, data.get(item.event_id))
        for rule in rules:
            decided = match(item, rule, event)
            if isinstance(decided, Refusal):
                refusals[item].append(decided)
            elif decided is not None:
                matches[item].append(decided)
    return matches, refusals


def match(item: Item, rule: Rule, event: dict[str, Any]) -> Match | Refusal | None:
    bare = _bare(item, rule)
    try:
        # An event aimed at a trigger (a tick, a manual fire) does not ask for its filter.
        if item.target_id is None and not passes(rule, event):
            return None
        if refusal := hold_or_stop(bare):
            return refusal
        input = input_of(rule, event) if rule.input else None
        return replace(bare, key=key_of(rule, event), input=input)
    except ExpressionError as error:
        return refuse(bare, Decision.Outcome.ERROR, str(error)[:2000])


def wanted_by(item: Item, index: Index) -> list[Rule]:
    if item.target_id is not None:
        rules = [index.by_id[item.target_id]] if item.target_id in index.by_id else []
    else:
        rules = index.candidates(item.source, item.type)
    if item.trigger_id is None:
        return rules
    return [index.by_id[item.trigger_id]] if item.trigger_id in index.by_id else []


def leave_behind(items: Sequence[Item], matches: dict[Item, list[Match]], busy: set[str]) -> set[Item]:
    left = set()
    for item in items:
        needed = {match.key for match in matches[item] if match.key}
        if needed & busy:
            left.add(item)
            busy = busy | needed
    return left


def read_items(limit: int) -> list[Item]:
    names = list(Item.__dataclass_fields__)
    rows = fetch(READ, {"limit": limit, "nil": NIL_REPLAY})
    return [Item(**dict(zip(names, row, strict=True))) for row in rows]


def read_data(event_ids: set[UUID]) -> dict[UUID, Any]:
    if not event_ids:
        return {}
    return {id: None if data is None else json.loads(data) for id, data in fetch(DATA, [list(event_ids)])}


def cel_event(item: Item, data: Any) -> dict[str, Any]:
    """`event` as filters, keys and input mappings see it."""
    return {
        "id": str(item.event_id), "type": item.type, "source": item.source, "subject": item.subject, "time": item.time, "data": data,
    }  # fmt: skip


def record(refusals: Sequence[Refusal]) -> None:
    if refusals:
        execute_many(DECIDE, [(r.event_id, r.trigger_id, r.replay_id, r.outcome, r.reason, r.run_id) for r in refusals])


def mark_resumed(items: Sequence[Item], runs: Sequence[NewRun]) -> None:
    resumed = {item.event_id for item in items if item.is_resumption}
    rows = [(run.id, run.event_ids[0], run.trigger_id, run.replay_id) for run in runs if run.event_ids[0] in resumed]
    if rows:
        execute_many(RESUMED, rows)


def mark_dispatched(items: Sequence[Item]) -> None:
    events = [item.event_id for item in items if item.redispatch_id is None]
    redispatches = [item.redispatch_id for item in items if item.redispatch_id is not None]
    if events:
        execute(MARK_EVENTS, [events])
    if redispatches:
        execute(MARK_REDISPATCHES, [redispatches])


def _try_lock() -> bool:
    return bool(fetch(TRY_LOCK, LOCK)[0][0])


def _bare(item: Item, rule: Rule) -> Match:
    return Match(rule=rule, event_id=item.event_id, root_id=item.root_id, depth=item.depth, replay_id=item.replay_id)
