"""Stop an agent, or all of them, in an emergency: its runs no longer start, and running ones are ended within seconds.

A worker's parent kills the child of such a run, and with it the request to a model that is in flight. The run waits in its
queue, with its journal, until the agent is started again. Events are still accepted and still become runs.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError, transaction

from agents import registry
from agents.exceptions import Permanent
from agents.guards.atomic import not_in_atomic_body
from agents.guards.storable import storable
from agents.prompt_agents import catalog
from runs.calls import nudge
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import fetch, fetch_as
from runs.exceptions import IllegalState, UnknownAgent
from runs.models import AgentStop, Run, audit

log = structlog.get_logger(__name__)
EVERY = AgentStop.EVERY

# An agent exists where code, an operator, a worker or a run that has not finished names it.
AGENTS = """
WITH running AS (
  SELECT agent, count(*) AS runs FROM runs_run WHERE status = 'running' GROUP BY agent
), names AS (
  SELECT unnest(%(known)s::text[]) AS name UNION SELECT '*' UNION SELECT agent FROM runs_agentstop UNION SELECT agent FROM running
  UNION SELECT unnest(agents) FROM runs_worker WHERE stopped_at IS NULL
)
SELECT names.name, stop.stopped_at, coalesce(stop.stopped_by, '') AS stopped_by, coalesce(stop.reason, '') AS reason,
  extract(epoch FROM clock_timestamp() - stop.stopped_at)::float8 AS stopped_seconds,
  CASE names.name WHEN '*' THEN (SELECT coalesce(sum(runs), 0) FROM running) ELSE coalesce(running.runs, 0) END::int AS running
FROM names LEFT JOIN runs_agentstop stop ON stop.agent = names.name LEFT JOIN running ON running.agent = names.name
ORDER BY names.name <> '*', names.name
"""
# To the parents of workers and to callers. Without it they find the stop at their next look.
NOTIFY = "SELECT pg_notify(%s, ''), pg_notify(%s, %s)"


@dataclass(frozen=True, kw_only=True)
class AgentState:
    """An agent, or with EVERY all of them, and whether an operator has stopped it."""

    name: str
    stopped_at: Any
    stopped_by: str
    reason: str
    stopped_seconds: float | None
    running: int

    @property
    def is_stopped(self) -> bool:
        return self.stopped_at is not None


@dataclass(frozen=True, kw_only=True)
class StoppedRun:
    """A run that was running when its agent was stopped."""

    id: UUID
    agent: str


def all_agents() -> list[AgentState]:
    """Every agent by name; first the one called "*", which stands for all of them."""
    return fetch_as(AgentState, AGENTS, {"known": [agent.name for agent in registry.all_agents()]})


def find_agent(name: str) -> AgentState:
    """UnknownAgent."""
    for one in all_agents():
        if one.name == name:
            return one
    if _is_storable(name) and Run.objects.filter(agent=name).exists():
        return AgentState(name=name, stopped_at=None, stopped_by="", reason="", stopped_seconds=None, running=0)
    raise UnknownAgent(name)


def _is_storable(name: str) -> bool:
    try:
        storable(name, "the name")
    except Permanent:
        return False
    return True


@not_in_atomic_body
def stop_agents(name: str, *, reason: str, by: str) -> list[StoppedRun]:
    """Stop this agent, or with EVERY all of them; which runs that ends. Raises UnknownAgent, or IllegalState when it is stopped
    already: then that reason stands."""
    find_agent(name)
    with transaction.atomic():
        row, is_new = AgentStop.objects.get_or_create(agent=name, defaults={"reason": reason, "stopped_by": by})
        if not is_new:
            raise IllegalState(f"{in_words(name)} already.", "stopped")
        audit.record(by, "stop", row, reason=reason)
        transaction.on_commit(_notify)
    # Runs that were claimed before the commit are running by now.
    running = Run.objects.running().filter(**({} if name == EVERY else {"agent": name})).order_by("agent", "id")
    return [StoppedRun(id=id, agent=agent) for id, agent in running.values_list("id", "agent")]


def _notify() -> None:
    """After the commit: PostgreSQL refuses that of a NOTIFY while its queue of them is full, and a stop must not depend on it."""
    try:
        fetch(NOTIFY, [catalog.CHANNEL, nudge.CHANNEL, nudge.UNWANTED])
    except DatabaseError:
        log.warning("stop.not_notified", exc_info=True)


@not_in_atomic_body
def start_agents(name: str, *, by: str) -> None:
    """Let its runs start again, those that were stopped from their journals. One that is stopped by itself stays so while all
    are started. Raises IllegalState when it is not stopped."""
    with transaction.atomic():
        row = AgentStop.objects.select_for_update().filter(agent=name).first()
        if row is None:
            raise IllegalState(
                f"{'Not all agents are' if name == EVERY else f'Agent {name} is not'} stopped.", "active"
            )
        audit.record(by, "start", row)
        row.delete()
        nudge_dispatcher()


def still_running(runs: list[StoppedRun]) -> int:
    """The number of these runs that have not ended yet."""
    return Run.objects.running().filter(id__in=[run.id for run in runs]).count()


def of_it(name: str) -> str:
    """What “No run … starts” needs to name: the one agent that is stopped."""
    return "" if name == EVERY else " of it"


def in_words(name: str) -> str:
    return "All agents are stopped" if name == EVERY else f"Agent {name} is stopped"
