from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from agents import Agent, AgentRun, registry
from runs.claim import Claim, claim_next
from runs.models import Worker
from tests.support.runs import AGENTS, make_run
from tests.support.triggers import make_event


@pytest.fixture
def worker(db: None) -> Worker:
    return Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)


@pytest.fixture
def claim_for(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Claim]:
    """A function that claims a run whose agent has the body it is given."""

    def claim_for(body: Callable[[AgentRun], Any], **fields: Any) -> Claim:
        monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=body))
        make_run(event_id=make_event(data={"name": "Ada"}).id, **fields)
        claim = claim_next(worker.id, "default", AGENTS)
        assert claim is not None
        return claim

    return claim_for


@pytest.fixture
def first_of_two(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Claim]:
    """The claim of a run with this body; a second one waits."""

    def first_of_two(body: Callable[[AgentRun], Any], **fields: Any) -> Claim:
        monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=body))
        for _ in range(2):
            make_run(event_id=make_event().id, **fields)
        claim = claim_next(worker.id, "default", AGENTS)
        assert claim is not None
        return claim

    return first_of_two
