"""Shadow run: execute a run with today's code in a transaction that is always rolled back.

It refuses connections to other hosts and databases, and new processes. So it leaves only gaps in sequences, and files that the body
wrote. It waits at most one second for a lock, so that it blocks other sessions only briefly.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection, connections, transaction
from django.db.backends.signals import connection_created

from agents import Agent, AsyncAgentRun, Retry
from agents.exceptions import Permanent, StepFailed, describe
from agents.guards.atomic import atomic_body
from agents.guards.network import outside_refused
from agents.guards.storable import storable
from agents.journal.ends import TriedAgain
from agents.journal.engine import Journal
from agents.kernel.effects import Effects
from agents.prompt_agents import catalog
from runs.attempt import effects
from runs.attempt.deadline import run_within
from runs.attempt.failure import as_permanent, trace
from runs.body import run_of
from runs.claim import Claim
from runs.db.session import read_only, writing
from runs.db.sql import fetch
from runs.exceptions import DeadlineExceeded, IllegalState
from runs.shadow.recorder import Recorder, Statement, TableChange
from runs.shadow.store import ShadowStore, Stop, Stopped, Taken, obstacle_of
from runs.shadow.trial import TrialStore

LIMIT = 30.0  # seconds, of the body
TRIAL_LIMIT = 60.0  # models take their time
SESSION = "wakeful:shadow"
REFUSED = "a shadow run makes no calls and starts no process ({event}): make the call in a step with another effect"
LIMITS = """
SELECT set_config('lock_timeout', '1s', true), set_config('statement_timeout', '30s', true),
       set_config('idle_in_transaction_session_timeout', %s::text, true), set_config('application_name', %s::text, true)
"""


class Outcome(StrEnum):
    SUCCEEDS = "succeeds"
    FAILS = "fails"
    RETRIES = "retries"  # the agent, or a step's `retries`, requests another attempt
    STOPS = "stops"  # a shadow run cannot know how it goes on


@dataclass(kw_only=True)
class Shadow:
    """The result of a shadow run. Its effects were collected, not sent."""

    agent: str
    trigger: str
    version: str
    run_id: UUID  # the id that the run would have, or has
    origin: UUID | None  # the run whose journal answered
    outcome: Outcome = Outcome.SUCCEEDS
    result: Any = None
    error: str = ""
    traceback: str = ""
    stop: Stop | None = None
    entries: list[Taken] = field(default_factory=list)
    not_asked: list[str] = field(default_factory=list)
    changes: list[TableChange] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    statement_count: int = 0
    left: Effects = field(default_factory=Effects)
    seconds: float = 0.0

    def dump(self) -> dict[str, Any]:
        return asdict(self)


def shadow(claim: Claim, origin: UUID | None = None, *, trial: TrialStore | None = None) -> Shadow:
    """Execute a run with this claim as a shadow run. The journal of the run `origin` answers its calls and waits. A `trial` makes
    some calls itself.

    Call it in the main thread of a process of its own, outside of transactions. Raises IllegalState for an unknown agent.
    """
    agent = _agent(claim)
    limit = LIMIT if trial is None else TRIAL_LIMIT
    tried = Shadow(agent=agent.name, trigger=claim.trigger, version=agent.version, run_id=claim.run_id, origin=origin)
    network = outside_refused(REFUSED, network=trial is None)
    with network, _other_databases_refused(), read_only(SESSION), _rolled_back(limit):
        recorder, began = Recorder(), time.monotonic()
        with connection.execute_wrapper(recorder):
            if agent.durable:
                _try_durable(agent, claim, tried, trial or ShadowStore(claim, origin), limit)
            else:
                _try_atomic(agent, claim, tried)
        tried.seconds = time.monotonic() - began
        tried.changes, tried.statements = recorder.changes(), recorder.statements
        tried.statement_count = recorder.count
    return tried


def _agent(claim: Claim) -> Agent:
    try:
        return catalog.begun(claim.agent, claim.begun_version)
    except KeyError:
        raise IllegalState(f"This process has no code for agent {claim.agent!r}.", status="no_code") from None


@contextmanager
def _other_databases_refused() -> Iterator[None]:
    for other in connections.all(initialized_only=True):
        if other.alias != DEFAULT_DB_ALIAS:
            other.close()
    connection_created.connect(_refuse_other_databases)
    try:
        yield
    finally:
        connection_created.disconnect(_refuse_other_databases)


def _refuse_other_databases(connection: Any, **kwargs: Any) -> None:
    if connection.alias != DEFAULT_DB_ALIAS:
        connection.close()
        raise Permanent(f"a shadow run cannot use database {connection.alias!r}, because that would not be rolled back")


class _Undone(Exception):
    pass


@contextmanager
def _rolled_back(limit: float) -> Iterator[None]:
    # The on_commit hooks are discarded too. Other sessions of this process are read-only, because they are not rolled back.
    try:
        with writing():
            fetch(LIMITS, [f"{limit + 10:g}s", SESSION])
            yield
            raise _Undone
    except _Undone:
        pass


def _try_atomic(agent: Agent, claim: Claim, tried: Shadow) -> None:
    run = run_of(claim)
    try:
        with transaction.atomic():
            with atomic_body(agent.name):
                result = run_within(agent, run, min(claim.policy.timeout, LIMIT))
            effects.check(claim, run.effects)
            connection.check_constraints()
            tried.result = storable(result, "its result")
        tried.left = run.effects
    except BaseException as error:
        _tell(error, agent, claim, tried, LIMIT)


def _try_durable(agent: Agent, claim: Claim, tried: Shadow, store: ShadowStore, limit: float) -> None:
    journal = Journal(store)
    run = run_of(claim, journal, may_use=agent.connections)
    tried.entries, tried.left = store.taken, store.left
    try:
        with store.body():
            result = run_within(
                agent, AsyncAgentRun(run, journal) if agent.is_async else run, min(claim.policy.timeout, limit)
            )
            journal.require_end()
        tried.result = storable(result, "its result")
    except BaseException as error:
        end = journal.end or error  # the body may have caught the interruption
        if isinstance(end, TriedAgain):
            store.commit(end.entries, Effects(), at="")
            end = _retry(end)
        _tell(end, agent, claim, tried, limit)
    else:
        tried.not_asked = store.not_asked


def _retry(end: TriedAgain) -> Retry:
    failed = StepFailed(end.failed.key, end.failed.error_kind, end.failed.error)
    retry = Retry(f"{failed}; it would be tried again, {end.tries - 1} times at most")
    retry.__cause__ = end.error
    return retry


def _tell(error: BaseException, agent: Agent, claim: Claim, tried: Shadow, limit: float) -> None:
    """Set the outcome of a body that raised."""
    if isinstance(error, Stopped):
        tried.outcome, tried.stop = Outcome.STOPS, error.stop
    elif isinstance(error, DeadlineExceeded) and claim.policy.timeout > limit:
        tried.outcome = Outcome.STOPS
        tried.stop = Stop(kind="limit", said=f"a shadow run ends after {limit:g} s")
    elif obstacle := obstacle_of(error):
        tried.outcome, tried.stop = Outcome.STOPS, Stop(kind="lock", said=obstacle)
    elif isinstance(error, KeyboardInterrupt) and not isinstance(error, DeadlineExceeded):
        raise error
    else:
        error = as_permanent(error) if agent.durable else error
        tried.outcome = Outcome.RETRIES if isinstance(error, Retry) else Outcome.FAILS
        tried.error, tried.traceback = describe(error), trace(error)
