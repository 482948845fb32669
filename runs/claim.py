"""Claim the best ready run of a queue: first by priority, then by turn."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DataError, IntegrityError, OperationalError, transaction

from agents.gate import Fire
from agents.prompt_agents.definition import PREFIX
from runs.db import ready_runs, session
from runs.db.patience import is_locked
from runs.db.ready_runs import IS_PAUSED, STOPPED
from runs.db.sql import Query, array, execute, fetch, fetch_as
from runs.models.policy import Policy
from runs.models.run import NIL
from runs.processes.alive import TAKES_RUNS
from runs.states import RunStatus
from runs.transitions.failure_log import Whose
from runs.transitions.leave import take_away
from runs.transitions.outcome import Ticket, released

log = structlog.get_logger(__name__)

# Seconds from the soft deadline, which interrupts the body in its own process, to the parent's hard one.
HARD_DEADLINE_AFTER = 5.0
# Seconds that a session must have lived before a claim need not wait for the disk. A crash of the server ends all sessions, so the
# run that crashed it is claimed by a young one, and the commit of that claim waits: its attempts count, and come to an end.
LAZY_AFTER = 60.0
MOST_ASIDE = 100  # most runs that one claim puts aside

# A worker whose code has the agent as atomic leaves a run with a journal to a live worker that has it as durable; without one, it
# claims the run and parks it.
MAY_EXECUTE = """(NOT run.has_journal OR run.agent = ANY(me.durable_agents) OR NOT EXISTS (
    SELECT FROM runs_worker worker
    WHERE worker.id <> me.id AND {takes_runs} AND run.queue = ANY(worker.queues) AND run.agent = ANY(worker.durable_agents)))"""
# The first runs of each agent, the best of these first. Other claims may have locked all `{first}` of an agent: the run behind
# them is not read, and runs after it have to wait for the next look, which reads more. Only the claimed row is locked.
BEST = """
WITH me AS (
  SELECT id, durable_agents FROM runs_worker worker WHERE id = %(worker)s::uuid AND {takes_runs} AND {gate}
), first AS MATERIALIZED (
  SELECT first.id, first.agent, first.at FROM me CROSS JOIN {sought}
  CROSS JOIN LATERAL (
    SELECT run.id, run.agent, ARRAY[run.priority, {place}, run.seq] AS at {of_agent} AND {may_execute} ORDER BY {order} LIMIT {first}) first
  WHERE NOT {stopped} && ARRAY['*', sought.agent]
), best AS MATERIALIZED (
  SELECT run.id FROM (
    SELECT id FROM first
    WHERE at <= ALL (SELECT max(at) FROM first GROUP BY agent HAVING count(*) = {first})
    ORDER BY at) candidate
  CROSS JOIN LATERAL (
    SELECT id, status, ready_at FROM runs_run WHERE id = candidate.id OFFSET 0 FOR UPDATE SKIP LOCKED) run
  WHERE {is_ready} LIMIT 1
)
"""
PARTS = {
    "sought": ready_runs.SOUGHT, "of_agent": ready_runs.OF_AGENT, "is_ready": ready_runs.IS_READY, "place": ready_runs.PLACE,
    "order": ready_runs.ORDER,
    "stopped": STOPPED, "may_execute": MAY_EXECUTE, "takes_runs": TAKES_RUNS,
}  # fmt: skip
for name, part in PARTS.items():
    BEST = BEST.replace(f"{{{name}}}", part)
# This must not fail for any value of a run, which would block every claim. Another version may have written any policy.
TIMEOUT = """CASE jsonb_typeof(policy->'timeout') WHEN 'number' THEN
      least(greatest((policy->>'timeout')::numeric, 0), 1e9)::float8 END"""
TAKE = """
UPDATE runs_run SET
  status = 'running', status_reason = '', ready_at = NULL, worker_id = %(worker)s::uuid, pid = %(pid)s::int,
  claimed_at = clock_timestamp(), started_at = coalesce(started_at, clock_timestamp()),
  deadline_at = clock_timestamp() + make_interval(secs => coalesce({timeout}, %(timeout)s::float8) + %(hard)s::float8),
  attempt = attempt + 1, epoch = epoch + 1, claim = gen_random_uuid(),
  version = CASE WHEN started_at IS NOT NULL AND starts_with(begun_version, '{prompt}') THEN begun_version
    ELSE (%(versions)s::text[])[array_position(%(agents)s::text[], agent)] END,
  begun_version = CASE WHEN started_at IS NULL THEN (%(versions)s::text[])[array_position(%(agents)s::text[], agent)] ELSE begun_version END
FROM best WHERE runs_run.id = best.id
RETURNING runs_run.id AS run_id, epoch, attempt, agent, trigger, trigger_id, event_ids, input, policy, root_id, depth, chain, key,
  slot, key_limit, parent_id, replay_id, claim AS id, has_journal, is_tainted, fired, begun_version,
  runs_timeline() AS timeline, {named} AS named
""".replace("{timeout}", TIMEOUT).replace("{prompt}", PREFIX)
# Fewer children than MANY are between claim and commit at the same moment.
FEW, MANY = "8", "256"
UNBEGUN = """
SELECT id AS run_id, epoch, claim, key, slot, key_limit FROM runs_run
WHERE status = 'running' AND worker_id = %(worker)s::uuid AND pid = %(pid)s::int
"""
LIMIT = "SELECT max_running FROM runs_queue WHERE name = %(queue)s::text AND max_running IS NOT NULL"
# A body may have chosen an isolation level in which a changed row is an error instead of being read again.
READS_ANEW = "current_setting('transaction_isolation') = 'read committed'"
# Always one row: the claim, or why one may be left although none was claimed.
CLAIM = f"""{BEST}, taken AS ({TAKE})
SELECT taken.*, CASE WHEN taken.run_id IS NULL THEN
  CASE WHEN EXISTS ({UNBEGUN}) THEN 'unbegun' WHEN EXISTS ({LIMIT}) THEN 'limit'
    WHEN EXISTS (SELECT FROM first) OR NOT {READS_ANEW} THEN 'locked' ELSE '' END END AS left_out
FROM (SELECT) look LEFT JOIN taken ON true
"""  # noqa: S608  (our own parts)
NAME = "set_config('application_name', 'wakeful:' || runs_run.id || ':' || epoch, false)"
# Whatever the run commits later flushes its claim too. If a crash of the server loses the claim, the run is claimed again, and the
# fence of the old claim fails. A body that crashes the server would be executed for ever, if all its claims were lost: see LAZY_AFTER.
NAMED = f"concat({NAME}, CASE WHEN %(lazy)s::boolean AND attempt = 1 THEN set_config('synchronous_commit', 'off', true) END)"
# While the transaction is open that also ends another run, a rescuer must find the session by the name of that run. So the claim
# is kept in a setting of the session, by which it is named after the commit, unless another process has taken the run by then.
KEPT = "set_config('wakeful.claimed', concat_ws(' ', runs_run.id, epoch, claim), false)"
KEPT_PARTS = "string_to_array(current_setting('wakeful.claimed', true), ' ')"
NAME_KEPT = f"""
SELECT set_config('application_name', 'wakeful:' || id || ':' || epoch, false) FROM runs_run
WHERE id = ({KEPT_PARTS})[1]::uuid AND epoch = ({KEPT_PARTS})[2]::int AND claim = ({KEPT_PARTS})[3]::uuid
"""  # noqa: S608  (our own parts)
PAUSED = IS_PAUSED.format(queue="%(queue)s::text")
RUNNING = "SELECT count(*) FROM runs_run WHERE status = 'running' AND queue = %(queue)s::text"
UNLIMITED = f"NOT {PAUSED} AND NOT EXISTS ({LIMIT})"
IF_UNDER_LIMIT = f"NOT {PAUSED} AND ({RUNNING}) < ({LIMIT})"
IF_OPEN = f"NOT {PAUSED} AND coalesce(({RUNNING}) < ({LIMIT}), true)"


def _claim_if(gate: str, first: str, named: str = NAMED) -> str:
    return CLAIM.replace("{gate}", gate).replace("{first}", first).replace("{named}", named)


CLAIM_FIRST = _claim_if(UNLIMITED, FEW)
CLAIM_BEHIND = _claim_if(UNLIMITED, MANY)
CLAIM_ALONG = _claim_if(f"{UNLIMITED} AND {READS_ANEW}", FEW, KEPT)
CLAIM_LIMITED = _claim_if(IF_UNDER_LIMIT, MANY)
BEST_ALONE = BEST.replace("{gate}", IF_OPEN).replace("{first}", MANY) + "SELECT id FROM best"  # noqa: S608  (our own parts)
CLAIM_THIS = "WITH best AS (SELECT %(run)s::uuid AS id)" + TAKE.replace("{named}", NAMED)
PUT_ASIDE = """
UPDATE runs_run SET ready_at = NULL, due_at = clock_timestamp() + interval '5 minutes', status_reason = %(reason)s::text
WHERE id = %(run)s::uuid
"""
# A child that freezes with this lock has no claim yet, so no rescuer looks for its session: PostgreSQL ends it. Children that
# wait for the lock give up earlier and turn to other queues.
QUEUE_LOCK = """
SELECT set_config('idle_in_transaction_session_timeout', '5s', true), set_config('lock_timeout', '2s', true),
  pg_advisory_xact_lock(%(space)s::int, hashtext(%(queue)s::text))
"""
QUEUE_SPACE = 0x57AD  # namespace of the two-integer advisory locks


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A run that this process owns until another process raises its epoch or claims it. `id` is the claim's identity."""

    run_id: UUID
    epoch: int
    id: UUID | None
    attempt: int
    agent: str
    trigger: str
    trigger_id: UUID | None
    event_ids: Sequence[UUID]
    input: Any
    policy: Policy
    root_id: UUID
    depth: int
    chain: Sequence[str] = ()
    key: str | None
    slot: int | None
    key_limit: int = 1
    parent_id: UUID | None = None
    replay_id: UUID = UUID(NIL)
    has_journal: bool = False
    is_tainted: bool = False
    begun_version: str = ""  # version of its agent; a prompt agent's run keeps it
    fired: Fire | None = None  # the answer of its gate, once it is committed
    gate_revision: int = 0  # revision of the state that the gate had read
    gate_is_tainted: bool = False  # had the gate seen untrusted data?
    timeline: str = ""  # timeline of the server that made the claim; "": unknown
    is_named: bool = True  # does the claiming session have the claim's name?
    asked: float = field(default_factory=time.monotonic)  # when this process sent the claim
    unreadable: Exception | None = None  # the error of reading its input and policy in this version

    @property
    def ticket(self) -> Ticket:
        return Ticket(
            run_id=self.run_id,
            epoch=self.epoch,
            claim=self.id,
            timeline=self.timeline,
            key=self.key,
            slot=self.slot,
            key_limit=self.key_limit,
            attempt=self.attempt,
            may_have_parent=self.parent_id is not None,
        )

    @property
    def whose(self) -> Whose:
        return Whose(self.run_id, self.agent, self.trigger)

    @property
    def session_name(self) -> str:
        """The application_name of the session that executes this claim; a rescuer finds and ends the session by it."""
        return f"wakeful:{self.run_id}:{self.epoch}"


@dataclass(frozen=True)
class Nothing:
    """No run was claimed, and why one may be left."""

    left_out: str

    @property
    def is_unbegun(self) -> bool:
        """Does the database list a run as running in this process?"""
        return self.left_out == "unbegun"

    @property
    def is_limited(self) -> bool:
        return self.left_out == "limit"

    @property
    def is_locked(self) -> bool:
        return self.left_out == "locked"


@dataclass
class Along:
    """A claim to be sent in the transaction that ends another run. `is_last`: that has committed, and no run was left to claim."""

    parameters: Mapping[str, Any]
    is_from_beginning: bool
    asked: float = field(default_factory=time.monotonic)
    is_last: bool = False

    def made(self, claim: Claim, *, is_named: bool) -> Claim:
        return replace(claim, asked=self.asked, is_named=is_named)

    def committed(self, found: Claim | Nothing) -> None:
        self.is_last = self.is_from_beginning and isinstance(found, Nothing) and not found.left_out


def claim_next(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> Claim | None:
    """Claim a run for this process; None: nothing is ready, or this worker is not open, fresh and accepting runs. `agents` are
    the agents it has code for, with the version of each."""
    found = look(worker_id, queue, agents)
    return found if isinstance(found, Claim) else None


def look(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> Claim | Nothing:
    try:
        return _claim(worker_id, queue, agents)
    except IntegrityError:
        # A child may have one running run: the answer of an earlier claim never reached this process.
        release_unbegun(worker_id)
        return _claim(worker_id, queue, agents)


def claim_along(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> Along:
    """The claim of a run in the transaction that ends another one, so that both need one commit. It finds none also if the queue
    has a limit."""
    return Along(_parameters(worker_id, queue, agents), is_from_beginning=not ready_runs.hints.begins(queue))


def first_claim(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> Query:
    """The first statement of `look`, to be sent along with others. Where it finds nothing, `look` may."""
    return CLAIM_FIRST, _parameters(worker_id, queue, agents)


def _claim(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> Claim | Nothing:
    parameters = _parameters(worker_id, queue, agents)
    asked = time.monotonic()
    try:
        found = _take_best(queue, agents, parameters)
    except OperationalError as error:
        if not is_locked(error):
            raise
        return Nothing("locked")  # another child holds the lock for too long
    return replace(found, asked=asked) if isinstance(found, Claim) else found


def _take_best(queue: str, agents: Mapping[str, str], parameters: Mapping[str, Any]) -> Claim | Nothing:
    try:
        hinted = ready_runs.hints.begins(queue) and _found(CLAIM_FIRST, parameters)
        return hinted if isinstance(hinted, Claim) else _claim_first(queue, agents, parameters)
    except DataError:
        return _claim_past_offenders(queue, parameters)


def _claim_past_offenders(queue: str, parameters: Mapping[str, Any]) -> Claim | Nothing:
    """Claim the best run that can be claimed; put the runs before it aside for some minutes, with the reason."""
    for _ in range(MOST_ASIDE):
        with transaction.atomic():
            execute(QUEUE_LOCK, {"space": QUEUE_SPACE, "queue": queue})
            best = fetch(BEST_ALONE, parameters)
            if not best:
                return Nothing("")
            run_id = best[0][0]
            try:
                with transaction.atomic():
                    return fetch_as(claim_of, CLAIM_THIS, {**parameters, "run": run_id})[0]
            except DataError as error:
                execute(PUT_ASIDE, {"run": run_id, "reason": f"cannot be claimed: {error}"[:1000]})
                log.exception("run.cannot_be_claimed", run=str(run_id))
    return Nothing("")


def _claim_first(queue: str, agents: Mapping[str, str], parameters: Mapping[str, Any]) -> Claim | Nothing:
    """Look from the beginning of the queue."""
    parameters = {**parameters, **ready_runs.sought(dict.fromkeys(agents, ready_runs.BEGINNING))}
    began = time.monotonic()
    found = _found(CLAIM_FIRST, parameters)
    if isinstance(found, Nothing) and found.is_locked:
        found = _found(CLAIM_BEHIND, parameters)
    ready_runs.hints.looked(queue, list(agents), time.monotonic() - began)
    if isinstance(found, Nothing) and found.is_limited:
        return _claim_limited(queue, parameters)
    return found


def _found(statement: str, parameters: Mapping[str, Any]) -> Claim | Nothing:
    [found] = fetch_as(found_of, statement, parameters)
    return found


def _parameters(worker_id: UUID, queue: str, agents: Mapping[str, str]) -> dict[str, Any]:
    begins = ready_runs.hints.begins(queue) or dict.fromkeys(agents, ready_runs.BEGINNING)
    return {
        **ready_runs.sought({agent: place for agent, place in begins.items() if agent in agents}),
        "worker": worker_id,
        "pid": os.getpid(),
        "queue": queue,
        "agents": array(tuple(agents)),
        "versions": array(tuple(agents.values())),
        "lease": settings.WAKEFUL_LEASE,
        "timeout": settings.WAKEFUL_ATOMIC_TIMEOUT.total_seconds(),
        "hard": HARD_DEADLINE_AFTER,
        "lazy": session.seconds_connected() > LAZY_AFTER,
    }


def found_of(*, left_out: str | None, **columns: Any) -> Claim | Nothing:
    return claim_of(**columns) if left_out is None else Nothing(left_out)


def claim_of(*, input: str | None, policy: str, fired: str | None, named: str | None, **columns: Any) -> Claim:
    """The claim as this version reads it. It must not raise: the run is claimed, and only the executor can end it."""
    read: dict[str, Any]
    try:
        read = {"input": None if input is None else json.loads(input), "policy": Policy.of_text(policy)}
        if fired is not None:
            read |= gate_answer(json.loads(fired))
    except Exception as error:
        read = {"input": None, "policy": Policy.load({}), "unreadable": error}
    return Claim(**columns, **read, is_named=named is not None)


def gate_answer(stored: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a claim that hold the answer of its gate."""
    answer = Fire(stored["reason"], data=stored["data"], state=stored["state"])
    read = {"gate_revision": stored["revision"], "gate_is_tainted": stored.get("is_tainted", False)}
    return {"fired": answer, **read}


def _claim_limited(queue: str, parameters: Mapping[str, Any]) -> Claim | Nothing:
    """Claim from a queue with a limit of running runs: one claim at a time, so that the count is exact."""
    with transaction.atomic():
        execute(QUEUE_LOCK, {"space": QUEUE_SPACE, "queue": queue})
        return _found(CLAIM_LIMITED, parameters)


def release_unbegun(worker_id: UUID) -> None:
    """Release runs that the database lists as running in this process: it runs none, so their claims never began."""
    for ticket in fetch_as(Ticket, UNBEGUN, {"worker": worker_id, "pid": os.getpid()}):
        take_away(ticket, released("its claim never reached the worker"), expected=RunStatus.RUNNING)
        log.info("run.released", run=str(ticket.run_id), epoch=ticket.epoch)
