"""Child runs: created in a commit of their parent, reported when they end, and cancelled with it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from agents import registry
from agents.exceptions import Permanent
from agents.guards.storable import storable
from agents.kernel.effects import Child
from agents.kernel.tool_cap import narrowed
from runs import keys
from runs.claim import Claim
from runs.db.sql import fetch, fetch_column
from runs.enqueue import NewRun, enqueue
from runs.models import NIL, UNPARSED, Run
from runs.models.policy import Policy
from runs.outbox import LOCKED_AGAIN, say_again
from runs.states import FINISHED, LIVE_SQL, RunStatus
from runs.transitions.stop import stop
from runs.waits import end_without_children

CHILD_FINISHED = "child.finished"  # the outbox topic of a child's end
TOGETHER = 500  # most children that one transaction stops

OTHER_CHILDREN = """
SELECT count(*) FROM (
  SELECT FROM runs_run WHERE parent_id = %s::uuid AND id <> ALL (%s::uuid[]) LIMIT %s::int) child
"""
# OFFSET 0 makes the planner look up each run in the indexes, instead of joining whole tables.
#
# The children of a forked run still belong to it, and the fork may wait for them: they are stopped only if neither the run nor a
# fork that knows them is live.
ORPHANS = """
WITH RECURSIVE line (id) AS (
  SELECT unnest(%(ids)s::uuid[])
  UNION
  SELECT origin.id FROM line CROSS JOIN LATERAL (
    SELECT forked_from_id AS id FROM runs_run WHERE id = line.id AND forked_from_id IS NOT NULL OFFSET 0) origin
)
SELECT child.id FROM line CROSS JOIN LATERAL (
  SELECT id FROM runs_run
  WHERE parent_id = line.id AND status IN {live} AND cancel_requested_at IS NULL OFFSET 0
) child
WHERE EXISTS (SELECT FROM runs_run parent WHERE parent.id = line.id AND parent.status = 'cancelled' OFFSET 0)
""".replace("{live}", LIVE_SQL)
WITH_FORKS = """
WITH RECURSIVE fork (child, id) AS (
  SELECT id, parent_id FROM runs_run WHERE id = ANY(%(children)s::uuid[])
  UNION
  SELECT fork.child, next.id FROM fork CROSS JOIN LATERAL (SELECT id FROM runs_run WHERE forked_from_id = fork.id OFFSET 0) next
)
SELECT DISTINCT fork.child FROM fork CROSS JOIN LATERAL (
  SELECT id FROM runs_run WHERE id = fork.id AND status IN {live} OFFSET 0) live
WHERE EXISTS (
  SELECT FROM runs_step WHERE run_id = live.id AND strpos(output::text, fork.child::text) > 0 OFFSET 0)
""".replace("{live}", LIVE_SQL)
WAITING = "SELECT id FROM runs_run WHERE id = ANY(%s::uuid[]) AND status = 'waiting'"
LOCK_WAITING = f"{WAITING} FOR NO KEY UPDATE SKIP LOCKED"
FORKS = """
WITH RECURSIVE fork (id) AS (
  SELECT unnest(%s::uuid[])
  UNION
  SELECT next.id FROM fork CROSS JOIN LATERAL (SELECT id FROM runs_run WHERE forked_from_id = fork.id OFFSET 0) next
)
SELECT id FROM fork
"""


def enqueue_children(claim: Claim, children: Sequence[Child]) -> None:
    """Insert the runs that a run spawns, in the caller's transaction and before its fence; runs that exist are left alone.
    Raises Permanent if a limit is exceeded or an agent is unknown."""
    if not children:
        return
    runs = runs_of(claim, children)
    limited = sorted({run.key for run in runs if run.key})
    for key in limited:
        keys.lock(key)
    enqueue(runs)
    keys.promote(limited)


def runs_of(claim: Claim, children: Sequence[Child]) -> list[NewRun]:
    """The new runs of these children. Raises Permanent if a limit is exceeded or an agent is unknown."""
    _refuse_too_many(claim, children)
    return [_run_of(claim, child) for child in children]


def _refuse_too_many(claim: Claim, children: Sequence[Child]) -> None:
    if claim.depth >= settings.WAKEFUL_MAX_DEPTH:
        raise Permanent(
            f"a child of this run would be link {claim.depth + 1} of its causal chain; "
            f"WAKEFUL_MAX_DEPTH is {settings.WAKEFUL_MAX_DEPTH}"
        )
    most, new = settings.WAKEFUL_MAX_CHILDREN, {child.id for child in children}
    [(others,)] = fetch(OTHER_CHILDREN, [claim.run_id, list(new), most])
    if others + len(new) > most:
        raise Permanent(f"this run spawns more than {most:,} children, the limit of WAKEFUL_MAX_CHILDREN")


def _run_of(claim: Claim, child: Child) -> NewRun:
    return NewRun(
        id=child.id,
        agent=child.agent,
        trigger="",
        trigger_id=None,
        event_ids=[],
        policy=_policy_of(claim, child),
        root_id=claim.root_id,
        replay_id=UUID(NIL),
        depth=claim.depth + 1,
        chain=[*claim.chain, claim.trigger or claim.agent],
        input=storable(child.input, f"the input of a child, {child.agent!r},"),
        has_input=True,
        key=f"{claim.run_id}:{child.agent}" if child.at_once else None,
        key_limit=child.at_once or 1,
        parent_id=claim.run_id,
        is_tainted=child.is_tainted,
    )


def _policy_of(claim: Claim, child: Child) -> Policy:
    """The policy that the child's author declared, with the tool cap narrowed to its parent's."""
    try:
        agent = registry.get(child.agent)
    except KeyError:
        known = ", ".join(agent.name for agent in registry.all_agents()) or "none"
        raise Permanent(f"there is no agent {child.agent!r} to spawn; the agents are: {known}") from None
    policy = Policy.of_agent(agent)
    tools = narrowed(claim.policy.tools, policy.tools)
    return replace(policy, tools=None if tools is None else sorted(tools))


def children_finished(payloads: Sequence[dict[str, Any]]) -> None:
    """Wake the parents, and their forks, whose awaited children have all ended."""
    parents = sorted({UUID(payload["parent"]) for payload in payloads})
    waiting = set(fetch_column(WAITING, [fetch_column(FORKS, [parents])]))
    if not waiting:
        return
    free = set(fetch_column(LOCK_WAITING, [list(waiting)]))
    end_without_children(free)
    if busy := waiting - free:
        say_again(CHILD_FINISHED, [{"parent": str(parent)} for parent in sorted(busy)])


def stop_orphans(payloads: Sequence[dict[str, Any]]) -> None:
    """Cancel the live children of cancelled runs; their own children follow when they end. At most TOGETHER are cancelled in
    this transaction, the rest after its commit."""
    cancelled = [payload for payload in payloads if payload["status"] == RunStatus.CANCELLED]
    if not cancelled:
        return
    orphans = set(fetch_column(ORPHANS, {"ids": [payload["run"] for payload in cancelled]}))
    if orphans:
        orphans -= set(fetch_column(WITH_FORKS, {"children": sorted(orphans)}))
    if not orphans:
        return
    found = list(Run.objects.filter(id__among=sorted(orphans)).defer(*UNPARSED).order_by("key", "id")[:TOGETHER])
    free = _lock(found)
    for run in free:
        _stop(run)
    if len(free) < len(orphans):
        # At once if there are more; later if they are locked elsewhere.
        again = timedelta() if len(orphans) > TOGETHER and free else LOCKED_AGAIN
        say_again("run.finished", cancelled, after=again)


def _lock(runs: Sequence[Run]) -> list[Run]:
    """Lock the keys and then the runs, without waiting; return the runs that could be locked."""
    locked = keys.try_lock(run.key for run in runs if run.key)
    free = [run.id for run in runs if not run.key or run.key in locked]
    return list(
        Run.objects.filter(id__among=free).defer(*UNPARSED).order_by("key", "id").select_for_update(skip_locked=True)
    )


def _stop(run: Run) -> None:
    while run.status not in FINISHED and not stop(run, f"the end of run {run.parent_id}"):
        run.refresh_from_db()
