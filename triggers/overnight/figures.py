"""Activity of agents in a span of time: figures by agent, and by slot of a timeline.

Each query reads an index from the end of the span backwards, at most MOST rows of it: `cut` names the figures that are then too
low. Runs and quiet gates count at the time of their event, deliveries when they were planned, requests when they ended.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from agents.kernel.ids import first_id_at
from runs.budgets.spending import spent_between
from runs.db.sql import fetch
from runs.incidents.tell import LINK as INCIDENT
from runs.notifications.alarms import TOPIC as ALARM
from runs.notifications.alarms import WAKEFUL
from triggers.overnight.night import Night

MOST = 100_000  # rows of a table
SLOTS = 48  # of the timeline
SLOT = f"least(greatest(width_bucket(extract(epoch FROM %s)::float8, %%(start)s::float8, %%(end)s::float8, {SLOTS}), 1), {SLOTS}) - 1"
WOKEN = f"""
SELECT agent, {SLOT % "coalesce(started_at, created_at)"} AS slot, count(*), count(*) FILTER (WHERE started_at IS NOT NULL),
  count(*) FILTER (WHERE status = 'failed')
FROM (
  SELECT agent, status, started_at, created_at FROM runs_run WHERE id >= %(first)s::uuid AND id < %(last)s::uuid
  ORDER BY id DESC LIMIT %(most)s::int) newest
GROUP BY agent, slot
"""  # noqa: S608  (our own parts)
QUIET = f"""
SELECT trigger.agent, {SLOT % "newest.created_at"} AS slot, count(*), count(*) FILTER (WHERE newest.outcome = 'quiet')
FROM (
  SELECT trigger_id, outcome, created_at FROM triggers_decision WHERE event_id >= %(first)s::uuid AND event_id < %(last)s::uuid
  ORDER BY event_id DESC LIMIT %(most)s::int) newest
JOIN triggers_trigger trigger ON trigger.id = newest.trigger_id
GROUP BY trigger.agent, slot
"""  # noqa: S608  (our own parts)
# The sender of an alarm about a trigger is the trigger's slug, and of an incident its agent.
SENDER = (
    f"CASE WHEN starts_with(topic, '{ALARM}:') OR starts_with(topic, '{INCIDENT}:') THEN '{WAKEFUL}' ELSE sender END"
)
# Without digests: one that is written after 18:00 lies in the next span, and would be the news of the next digest.
SPOKEN = f"""
SELECT {SENDER} AS agent, {SLOT % "created_at"} AS slot, count(*)
FROM (
  SELECT sender, topic, created_at FROM runs_notification
  WHERE created_at >= to_timestamp(%(start)s::float8) AND created_at < to_timestamp(%(end)s::float8)
    AND NOT starts_with(topic, 'overnight:')
  ORDER BY created_at DESC LIMIT %(most)s::int) newest
GROUP BY agent, slot
"""  # noqa: S608  (our own parts)
DELIVERED = f"""
SELECT {SENDER} AS agent, newest.status, count(*)
FROM (
  SELECT notification_id, status FROM runs_delivery WHERE id >= %(first)s::uuid AND id < %(last)s::uuid
  ORDER BY id DESC LIMIT %(most)s::int) newest
CROSS JOIN LATERAL (SELECT topic, sender FROM runs_notification WHERE id = newest.notification_id OFFSET 0) notification
GROUP BY agent, newest.status
"""  # noqa: S608  (our own parts)
# An incident that opened in the span has failed in it. One of a source has no agent.
INCIDENTS = f"""
SELECT coalesce(nullif(agent, ''), '{WAKEFUL}') AS agent, {SLOT % "opened_at"} AS slot, count(*),
  count(*) FILTER (WHERE opened_at >= to_timestamp(%(start)s::float8) AND opened_at < to_timestamp(%(end)s::float8))
FROM (
  SELECT agent, opened_at FROM runs_incident WHERE last_at >= to_timestamp(%(start)s::float8)
  ORDER BY last_at DESC LIMIT %(most)s::int) newest
GROUP BY 1, slot
"""  # noqa: S608  (our own parts)


@dataclass(kw_only=True)
class Slot:
    """The activity of an agent in one forty-eighth of the span."""

    runs: int = 0
    quiet: int = 0
    failed: int = 0
    spoke: int = 0
    incidents: int = 0


@dataclass(kw_only=True)
class Figures:
    """The activity of an agent. `deliveries` counts its notifications by status; `unpriced` requests cost an
    unknown amount."""

    agent: str
    runs: int = 0
    quiet: int = 0
    failed: int = 0
    spoke: int = 0
    incidents: int = 0
    deliveries: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    tokens: int = 0
    usd: Decimal = Decimal(0)
    unpriced: int = 0
    slots: dict[int, Slot] = field(default_factory=dict)

    @property
    def woken(self) -> int:
        """Runs that began, and wakes at which the gate was quiet."""
        return self.runs + self.quiet

    @property
    def is_worth_telling(self) -> bool:
        """Did it do more than run well and be quiet?"""
        return bool(self.failed or self.spoke or self.incidents or self.requests)

    def count(self, slot: int, **counts: int) -> None:
        """Add to the figures and to a slot."""
        shown = self.slots.setdefault(slot, Slot())
        for name, number in counts.items():
            setattr(self, name, getattr(self, name) + number)
            setattr(shown, name, getattr(shown, name) + number)


@dataclass(frozen=True, kw_only=True)
class Overnight:
    """Agents with the most important figures first; `wakeful` among them stands for Wakeful's own notifications."""

    night: Night
    agents: Sequence[Figures]
    cut: Sequence[str]

    @property
    def total(self) -> Figures:
        total = Figures(agent="")
        for one in self.agents:
            for name in (
                "runs",
                "quiet",
                "failed",
                "spoke",
                "incidents",
                "deliveries",
                "requests",
                "tokens",
                "usd",
                "unpriced",
            ):
                setattr(total, name, getattr(total, name) + getattr(one, name))
        return total


class Count(dict[str, Figures]):
    def __missing__(self, agent: str) -> Figures:
        self[agent] = Figures(agent=agent)
        return self[agent]


def asked_of(night: Night) -> dict[str, Any]:
    """The parameters of the queries."""
    return {
        "start": night.start.timestamp(),
        "end": night.end.timestamp(),
        "first": first_id_at(night.start),
        "last": first_id_at(night.end),
        "most": MOST,
    }


def overnight(night: Night) -> Overnight:
    found = Count()
    read = {**dict(_count(found, asked_of(night))), "spent": _spent(found, night)}
    agents = [one for one in found.values() if one.woken or one.is_worth_telling or one.deliveries]
    return Overnight(
        night=night,
        agents=sorted(
            agents, key=lambda one: (-one.incidents, -one.failed, -one.spoke, -one.usd, -one.woken, one.agent)
        ),
        cut=[name for name, rows in read.items() if rows >= MOST],
    )


def _count(found: Count, asked: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Count into `found`; yields how many rows of each kind were read."""
    rows = fetch(WOKEN, asked)
    for agent, slot, _, runs, failed in rows:
        found[agent].count(slot, runs=runs, failed=failed)
    yield "runs", sum(row[2] for row in rows)
    rows = fetch(QUIET, asked)
    for agent, slot, _, quiet in rows:
        found[agent].count(slot, quiet=quiet)
    yield "quiet", sum(row[2] for row in rows)
    rows = fetch(SPOKEN, asked)
    for agent, slot, spoke in rows:
        found[agent].count(slot, spoke=spoke)
    yield "spoke", sum(row[2] for row in rows)
    rows = fetch(INCIDENTS, asked)
    for agent, slot, _, incidents in rows:
        if incidents:
            found[agent].count(slot, incidents=incidents)
    yield "incidents", sum(row[2] for row in rows)
    rows = fetch(DELIVERED, asked)
    for agent, status, number in rows:
        found[agent].deliveries[status] += number
    yield "deliveries", sum(row[2] for row in rows)


def _spent(found: Count, night: Night) -> int:
    """Count into `found`; returns how many requests were read."""
    requests = 0
    for spent in spent_between(night.start, night.end, MOST):
        of = found[spent.agent]
        of.requests += spent.requests
        of.tokens += spent.input_tokens + spent.output_tokens
        of.usd += spent.usd
        of.unpriced += spent.unpriced
        requests += spent.requests
    return requests
