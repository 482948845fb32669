"""Patches of one process, named in LAB_PATCHES: time that passes more quickly, and builds broken on purpose, each of which
the checker must notice."""

import time
from collections.abc import Iterable
from datetime import timedelta
from itertools import cycle
from typing import Any


def hasty_outbox() -> None:
    """A message that was being sent when its sender died is tried again after 2 s, not a minute."""
    from runs import outbox

    outbox.SENDING = timedelta(seconds=2)
    outbox.RETRY = timedelta(seconds=1)


def in_parts() -> None:
    """A dispatcher waits for its shards before it begins, they take the smallest batches, and batches are larger, because it looks less
    often."""
    from triggers.dispatch import shards
    from triggers.dispatch.loop import Dispatcher

    shards.LEAST, connect, look = 1, Dispatcher.connect, Dispatcher.look

    def connect_later(self: Any) -> None:
        while len(self.shards._begun(self.shards.most)) < self.shards.most:
            time.sleep(0.1)
        connect(self)

    def look_later(self: Any) -> Any:
        time.sleep(0.1)
        return look(self)

    Dispatcher.connect, Dispatcher.look = connect_later, look_later  # type: ignore[method-assign]


def _without(statement: str, guard: str, weaker: str) -> str:
    """A build that was not broken after all would prove nothing."""
    assert guard in statement, f"{guard} is not in {statement}"
    return statement.replace(guard, weaker)


def no_fence() -> None:
    """A claim that lost its run goes on and finishes it: neither the epoch nor the claim's identity is compared."""
    from runs.attempt import ownership
    from runs.transitions import leave

    for name in ("NAME_SESSION", "BEGIN_LATE"):
        fence, weaker = "AND epoch = %s::int AND claim = %s::uuid", "AND epoch >= %s::int AND %s::uuid IS NOT NULL"
        setattr(ownership, name, _without(getattr(ownership, name), fence, weaker))
    fence = "AND epoch = %(epoch)s::int AND claim IS NOT DISTINCT FROM %(claim)s::uuid\n"
    leave.BY_OWNER = _without(leave.BY_OWNER, fence, "AND epoch >= %(epoch)s::int\n")


def no_claim_identity() -> None:
    """A claim is its run and its epoch, whichever primary gave it that."""
    from runs.attempt import ownership
    from runs.durable import progress
    from runs.transitions import leave

    for name in ("NAME_SESSION", "BEGIN_LATE"):
        setattr(ownership, name, _without(getattr(ownership, name), "AND claim = %s::uuid", "AND %s::uuid IS NOT NULL"))
    ownership.is_still = lambda run, claim: run.epoch == claim.epoch
    leave.BY_OWNER = _without(leave.BY_OWNER, "AND claim IS NOT DISTINCT FROM %(claim)s::uuid", "")
    leave.BY_OWNER = _without(leave.BY_OWNER, leave.ON_ITS_TIMELINE, "")
    for name in ("FIRST", "FURTHER"):
        statement = _without(getattr(progress, name), "AND claim = %(claim)s::uuid", "")
        setattr(progress, name, _without(statement, leave.ON_ITS_TIMELINE, ""))


def no_termination() -> None:
    """Runs are handed on while the sessions of those who had them live."""
    from runs.processes import rescue
    from runs.worker import parent

    def leave_it(run_id: Any, epoch: int) -> bool:
        return True

    rescue.terminate_session = parent.terminate_session = leave_it


def no_attempts() -> None:
    """A claim is no attempt."""
    from runs import claim

    for name, value in vars(claim).items():
        if isinstance(value, str) and "attempt = attempt + 1" in value:
            setattr(claim, name, value.replace("attempt = attempt + 1", "attempt = attempt"))


def no_key_lock() -> None:
    """Keys are decided without their lock: the process looks, and decides when what it saw is over."""
    from runs import keys
    from runs.models import Run

    states = keys.states

    def try_lock(wanted: Iterable[str]) -> set[str]:
        return set(wanted)

    def lock(key: str) -> None:
        pass

    def stale_states(limits: Any) -> Any:
        seen = states(limits)
        holders = [state.first for state in seen.values() if state.slots]
        until = time.monotonic() + 0.5
        while holders and time.monotonic() < until:
            if not Run.objects.filter(id__in=holders).exclude(status="succeeded").exists():
                break
            time.sleep(0.01)
        return seen

    keys.lock, keys.try_lock, keys.states = lock, try_lock, stale_states


def no_dedup() -> None:
    """An event that is known is recorded again."""
    from triggers import accept

    for name in ("INSERT", "INSERT_VERIFIED", "INSERT_MANY_VERIFIED"):
        guard = "ON CONFLICT (source_id, ce_source, ce_id) DO NOTHING"
        setattr(accept, name, _without(getattr(accept, name), guard, ""))


def answers_before_it_commits() -> None:
    """Deliveries that come together are answered before the statement that inserts them has committed."""
    import asyncio

    from runs.db.together import Together, _resolve
    from runs.failpoints import failpoint

    async def write_next(together: Any, session: Any) -> None:
        await together._turn()
        batch = [together._waiting.popleft() for _ in range(min(len(together._waiting), together._most))]
        _resolve(batch, [True] * len(batch))
        await asyncio.sleep(0.05)  # the answers are sent
        failpoint("after_early_answer")
        await together._write(session, [one for one, _ in batch])
        await together._after(session)

    Together._write_next = write_next  # type: ignore[method-assign]


def outbox_deletes_first() -> None:
    """Messages leave the outbox in one transaction, and are handled in the next."""
    from django.db import connection

    from runs import outbox
    from runs.failpoints import failpoint

    fetch = outbox.fetch

    def fetch_and_commit(statement: str, parameters: Any = ()) -> Any:
        rows = fetch(statement, parameters)
        if statement == outbox.TAKE:
            connection.connection.commit()
            if any(topic == "event" for _, topic, _ in rows):
                failpoint("after_early_delete")
        return rows

    outbox.fetch = fetch_and_commit


def marks_before_it_decides() -> None:
    """Events count as dispatched before their runs are there."""
    from runs.db.sql import execute
    from runs.failpoints import failpoint
    from triggers.dispatch import batch, decisions

    settle = batch.settle_matched

    def settle_matched(begun: Any, matched: Any, most: Any) -> Any:
        from django.db import connection

        for query in decisions.marks([one.item for one in matched]):
            execute(*query)
        connection.connection.commit()
        failpoint("after_early_mark")
        return settle(begun, matched, most)

    batch.settle_matched = settle_matched


def shards_mark_before_they_decide() -> None:
    """Events of a part count as dispatched before their runs are there: a cursor that is moved first."""
    from runs.db.sql import execute
    from runs.failpoints import failpoint
    from triggers.dispatch import decisions, shard

    settle = shard.settle_matched

    def settle_matched(begun: Any, matched: Any) -> Any:
        from django.db import connection

        for query in decisions.marks([one.item for one in matched]):
            execute(*query)
        connection.connection.commit()
        failpoint("after_early_mark_of_a_shard")
        return settle(begun, matched)

    shard.settle_matched = settle_matched


def shards_divide_keys() -> None:
    """Events of one key are in several parts, and the later ones come first. Each batch has several of a key."""
    from triggers.dispatch import parts, shard
    from triggers.dispatch.loop import Dispatcher

    look = Dispatcher.look

    def look_later(self: Any) -> Any:
        time.sleep(0.5)
        return look(self)

    Dispatcher.look = look_later  # type: ignore[method-assign]
    parts._clusters = lambda matched: [[place] for place in range(len(matched))]
    dispatch_part = shard.dispatch_part

    def dispatch_later(request: Any, rules: Any, number: int) -> Any:
        time.sleep(0.1 * (number == 0))
        return dispatch_part(request, rules, number)

    shard.dispatch_part = dispatch_later


def rings_where_it_dispatches() -> None:
    """The thread that dispatches talks to the broker itself, as patiently as Celery, and never learns that it is away."""
    from runs.network import broker
    from runs.queues import courier, doorbell

    broker.ANSWER = broker.CONNECT = 10.0
    broker.FIRST_PAUSE = broker.LONGEST_PAUSE = 0.0

    def ring(ringer: Any) -> None:
        doorbell.ring()

    courier.Ringer.ring = ring  # type: ignore[method-assign]


def gives_up_at_once() -> None:
    """An event that fails alone is given up, whatever it fails for and however the others do."""
    from triggers.dispatch.failures import Careful

    def give_up(careful: Any, unit: Any, error: Exception) -> None:
        careful.work.give_up(unit, error)

    def fail(careful: Any, units: Any, error: Exception) -> None:
        careful.most = 1
        if len(units) == 1:
            give_up(careful, units[0], error)

    Careful._failed = fail  # type: ignore[method-assign]


def no_safety_look() -> None:
    """The dispatcher looks for events after a NOTIFY, and never else."""
    from dataclasses import replace

    from triggers.dispatch.loop import Dispatcher

    needs_leader = Dispatcher.needs_leader

    def needs_leader_if_told(dispatcher: Any, seen: Any) -> bool:
        is_told = time.monotonic() - dispatcher.follow_up.heard_at < 1
        own = replace(seen.own, has_events=seen.own.has_events and is_told)
        return needs_leader(dispatcher, replace(seen, own=own))

    Dispatcher.needs_leader = needs_leader_if_told  # type: ignore[method-assign]


def intent_after_call() -> None:
    """What may happen at most once is written down when it has happened."""
    from agents.journal.engine import Journal
    from runs.failpoints import failpoint

    commit, complete = Journal._commit_intent, Journal.complete

    def commit_of_others(journal: Any, begun: Any) -> None:
        if begun.request.effect != "at_most_once":
            commit(journal, begun)

    def complete_later(journal: Any, begun: Any, output: Any) -> Any:
        if begun.request.effect == "at_most_once":
            failpoint("after_unwritten_call")
        return complete(journal, begun, output)

    Journal._commit_intent, Journal.complete = commit_of_others, complete_later  # type: ignore[method-assign]


def answers_without_a_fence() -> None:
    """A caller that lost its requests records what they came to, although another one makes them by now."""
    from runs.calls import rows
    from runs.calls.caller import Caller, in_database_thread

    async def go_on(caller: Any) -> None:
        caller.presence.owns = bool(caller.tasks)
        await in_database_thread(caller.presence.renew)
        caller.me = caller.presence.row

    async def keep(caller: Any, me: Any) -> None:
        pass

    rows.LOCK = _without(rows.LOCK, "AND call.owner_id = %(me)s::uuid", "AND %(me)s::uuid IS NOT NULL")
    rows.OWNED = _without(rows.OWNED, "AND call.owner_id = %(me)s::uuid", "AND %(me)s::uuid IS NOT NULL")
    Caller._renew, Caller._drop_unwanted = go_on, keep  # type: ignore[method-assign]


def frees_what_may_be_made_once() -> None:
    """A request whose caller died is made by another one, also where it may be made only once."""
    from runs.calls import rows

    has_begun = (
        f"AND NOT ({rows.IS_ONCE} AND EXISTS (SELECT FROM runs_step "
        "WHERE run_id = run.id AND key = step->>'key' AND status = 'started'))"
    )
    rows.TAKE = _without(rows.TAKE, has_begun, "")
    rows.FREE_LOST = _without(rows.FREE_LOST, f"AND NOT {rows.IS_ONCE}", "")
    rows.REMOVE_LOST = _without(rows.REMOVE_LOST, f"AND {rows.IS_ONCE}", "AND false")


def no_look_back() -> None:
    """No process looks for what came before a wait was there, and each assumes that another has. It is there a moment late."""
    from runs import body, waits
    from runs.durable import early, store

    def look_away(run_id: Any = None, limit: int = 100) -> int:
        waits.execute("UPDATE runs_wait SET looked_at = clock_timestamp() WHERE status = 'open' AND looked_at IS NULL")
        return 0

    def end_later(claim: Any, outcome: Any, *given: Any) -> Any:
        if body.looks_back(outcome):
            time.sleep(1.0)
        return end(claim, outcome, *given)

    def find_none(run_id: Any, request: Any, **known: Any) -> None:
        return None

    end, store.find_early = body.ended_at_once, find_none  # type: ignore[assignment]
    early.has_not_come = lambda claim, wait: False
    waits.look_back, body.ended_at_once = look_away, end_later


def decisions_without_a_lock() -> None:
    """A decision looks whether there is one, takes a moment, and then overwrites that of others."""
    from django.db.models.functions import Now

    from agents.journal.canonical import digest_of
    from runs.actions import approve
    from runs.models import Approval

    read, moments = approve._read, cycle((0.0, 3.0))  # seconds: long enough to go on by the other decision

    def look_for_a_moment(approval_id: Any) -> Any:
        found = read(approval_id)
        time.sleep(next(moments))
        return found

    def overwrite(approval: Any, decision: str, by: str, arguments: Any, reason: str) -> None:
        decided = arguments if decision == "edit" else approval.arguments if decision == "approve" else None
        digest = "" if decision == "deny" else digest_of(approval.question, decided)
        Approval.objects.filter(pk=approval.pk).update(
            decision=decision, decided_by=by, decided_at=Now(), decided_arguments=decided, decided_digest=digest
        )

    def end_or_say_so(wait_ids: Any) -> int:
        return end(wait_ids) or len(wait_ids)

    end = approve.end_these
    approve._lock, approve._write, approve.end_these = look_for_a_moment, overwrite, end_or_say_so
