"""The ready runs of a queue in the order of their claims, agent by agent.

Order: priority, then `turn` (`seq` if there is none), then `seq`. The index begins with queue and agent, so a look takes one
step for each agent it asks for, even if a million runs of other agents wait.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runs.db.sql import array, fetch

IS_READY = "run.status = 'queued' AND run.ready_at IS NOT NULL"
PLACE = "coalesce(run.turn, run.seq)"
ORDER = f"run.priority, {PLACE}, run.seq"
# The agents to look for, each with the place to begin at. Arrays in a sub-SELECT: one plan for any number of them.
SOUGHT = """unnest((SELECT %(sought)s::text[]), (SELECT %(priorities)s::int[]), (SELECT %(turns)s::bigint[]),
    (SELECT %(seqs)s::bigint[])) AS sought(agent, priority, turn, seq)"""
OF_AGENT = f"""FROM runs_run run
  WHERE {IS_READY} AND run.queue = %(queue)s::text AND run.agent = sought.agent
    AND ({ORDER}) >= (sought.priority, sought.turn, sought.seq)"""
FIRST = f"""
SELECT sought.agent, first.priority, first.place, first.seq FROM {SOUGHT}
CROSS JOIN LATERAL (SELECT run.priority, {PLACE} AS place, run.seq {OF_AGENT} ORDER BY {ORDER} LIMIT 1) first
"""  # noqa: S608  (our own parts)
# The lowest ready turn in a queue and priority for an agent that a live worker knows. If nothing is ready, the next `seq`, which
# is no lower than any turn: earlier runs of a trigger or key do not count. `{since}`: lower turns are not read.
FLOOR = """
SELECT coalesce((
  SELECT min(first.place) FROM (
    SELECT DISTINCT agent FROM runs_worker worker, unnest(worker.queues) AS queue, unnest(worker.agents) AS agent
    WHERE worker.kind = 'worker' AND worker.stopped_at IS NULL AND queue = {of}.queue) known
  CROSS JOIN LATERAL (
    SELECT {place} AS place FROM runs_run run
    WHERE {is_ready} AND run.queue = {of}.queue AND run.agent = known.agent AND run.priority = {of}.priority
      AND {place} >= {since}
    ORDER BY {order} LIMIT 1) first), (SELECT last_value + is_called::int FROM runs_run_seq)) AS place
"""
# The highest turn, from the floor on, among the ready runs with a key of a trigger. Runs without a turn (requeued, of version N)
# come late and must not delay others; runs without a trigger never have a turn.
LAST = """
SELECT {place} FROM runs_run run
WHERE {is_ready} AND run.key IS NOT NULL AND run.queue = {of}.queue AND run.priority = {of}.priority
  AND run.trigger = {of}.trigger AND {place} >= floor.place AND (run.turn IS NOT NULL OR run.trigger = '')
ORDER BY {place} DESC LIMIT 1
"""
for name, part in {"is_ready": IS_READY, "place": PLACE, "order": ORDER}.items():
    FLOOR, LAST = FLOOR.replace(f"{{{name}}}", part), LAST.replace(f"{{{name}}}", part)

Place = tuple[int, int, int]
BEGINNING: Place = (-1, 0, 0)
SLOW = 0.01  # seconds; without dead index entries a look takes a tenth of it
HINTED = 1.0  # seconds between two looks from the beginning


@dataclass
class Hint:
    """The place where the ready runs of a queue began a moment ago, for each agent that had any.

    While an old snapshot is open, index entries of claimed runs cannot be removed, and a look from the beginning steps over
    each. If a look with the hint finds nothing, it starts again from the beginning, and so does the first look of every
    second. So a run that becomes ready in front of the hint waits one second at most."""

    begins: Mapping[str, Place]
    until: float


@dataclass
class Hints:
    """The hints of this process, by queue; none while looks are fast."""

    slow: float = SLOW
    by_queue: dict[str, Hint] = field(default_factory=dict)

    def begins(self, queue: str) -> Mapping[str, Place] | None:
        hint = self.by_queue.get(queue)
        return hint.begins if hint and time.monotonic() < hint.until else None

    def looked(self, queue: str, agents: Sequence[str], seconds: float) -> None:
        """Call after a look from the beginning; if it was slow, remember where the next ones begin."""
        self.by_queue.pop(queue, None)
        if seconds < self.slow:
            return
        began = time.monotonic()
        found = fetch(FIRST, {"queue": queue, **sought(dict.fromkeys(agents, BEGINNING))})
        now = time.monotonic()
        if now - began >= self.slow:
            self.by_queue[queue] = Hint(begins={agent: place for agent, *place in found}, until=now + HINTED)  # type: ignore[misc]


hints = Hints()


def sought(begins: Mapping[str, Place]) -> dict[str, str]:
    """The parameters of SOUGHT."""
    priorities, turns, seqs = zip(*begins.values(), strict=True) if begins else ((), (), ())
    return {
        "sought": array(tuple(begins)),
        "priorities": array(priorities),
        "turns": array(turns),
        "seqs": array(seqs),
    }


# Is this queue paused, or all queues?
IS_PAUSED = "EXISTS (SELECT FROM runs_queue WHERE name IN ('*', {queue}) AND paused_at IS NOT NULL)"
# The agents that an operator has stopped; '*' is all of them. Read once for a statement, however many agents it asks for.
STOPPED = "ARRAY(SELECT agent FROM runs_agentstop)"
# Has an operator stopped this agent, or all of them?
IS_STOPPED = "EXISTS (SELECT FROM runs_agentstop stop WHERE stop.agent IN ('*', {agent}))"
