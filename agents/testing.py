"""Run an agent in a test of yours: no broker, no worker, no rows but the ones your agent writes.

    @pytest.mark.django_db
    def test_a_digest_counts_what_is_new() -> None:
        Ticket.objects.create(digested=False)

        done = run_agent(ticket_digest)

        assert done.result == {"count": 1}
        assert [event.type for event in done.emitted] == ["tickets.digested"]
        assert not done.notifications

The body runs as in production: in a transaction (a savepoint of your test's), without network, on an event made of
what you give. What it raises is raised to you, and its writes are undone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import transaction

from .agent import Agent
from .effects import Emission, Notice
from .network import network_refused
from .run import AgentRun, Event
from .storable import storable


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """What a run would have committed besides the agent's own writes."""

    result: Any
    emitted: list[Emission]
    notifications: list[Notice]


def run_agent(
    agent: Agent,
    *,
    data: Any = None,
    type: str = "test.event",
    source: str = "test",
    subject: str = "",
    time: datetime | None = None,
    input: Mapping[str, Any] | None = None,
    trigger: str = "",
    attempt: int = 1,
    run_id: UUID | None = None,
) -> AgentResult:
    """Run the agent on one event with this `data`; `input` stands for what the trigger's input mapping would give."""
    event = Event(id=uuid4(), type=type, source=source, subject=subject, time=time or datetime.now(UTC), data=data)
    run = AgentRun(
        id=run_id or uuid4(),
        agent=agent.name,
        attempt=attempt,
        trigger=trigger or agent.name,
        input=input,
        read_events=lambda: [event],
    )
    with transaction.atomic():
        with network_refused(agent.name):
            result = agent(run)
        storable(result, "its result")
        for emission in run.effects.emissions:
            storable(emission.data, f"the data of emitted event {emission.type!r}")
    return AgentResult(result=result, emitted=run.effects.emissions, notifications=run.effects.notices)
