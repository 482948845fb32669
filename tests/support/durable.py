"""A durable agent driven by hand: claims, executions and the dispatcher's looks, in one process on the real database."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.db.models import F
from django.db.models.functions import Now

from agents import Agent, registry
from runs import body as bodies
from runs import executor, outbox, waits
from runs.chores import timers
from runs.claim import Claim, claim_next
from runs.db.sql import execute as execute_sql
from runs.durable import sessions
from runs.executor import execute
from runs.models import Run, Wait, Worker
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules


def record_with(monkeypatch: pytest.MonkeyPatch, record: Callable[..., Any]) -> None:
    """Outcomes are recorded by this, and never in the trip that ends a durable stretch."""
    monkeypatch.setattr(executor, "record", record)
    monkeypatch.setattr(bodies, "ended_at_once", lambda claim, outcome, next, session: bodies.Ended(outcome))


class Lab:
    """Declares agents, makes runs of them and lets them go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
        self.versions = {"durable": "1"}
        Group.objects.all().delete()  # what agents make in these tests

    def declare(self, body: Callable[..., Any], name: str = "durable", **declared: Any) -> Agent:
        agent = Agent(name=name, body=body, **{"durable": True, **declared})
        self.monkeypatch.setitem(registry._agents, name, agent)
        self.versions[name] = "1"
        return agent

    def run(
        self, body: Callable[..., Any], *, data: Any = None, declared: dict[str, Any] | None = None, **fields: Any
    ) -> Run:
        """A run of an agent with this body, as far as it goes by itself."""
        self.declare(body, **(declared or {}))
        policy = {"retries": 0, "durable": True, **fields.pop("policy", {})}
        made = make_run(event_id=make_event(data=data).id, trigger="durable", policy=policy, **fields)
        return self.go_on(made)

    def go_on(self, run: Run) -> Run:
        """Whatever a worker and a dispatcher would do now, until there is nothing to do."""
        while self.claim_and_execute() or self.look():
            pass
        run.refresh_from_db()
        return run

    def claim(self) -> Claim | None:
        Worker.objects.filter(pk=self.worker.pk).update(seen_at=Now())
        return claim_next(self.worker.id, "default", self.versions)

    def claim_and_execute(self) -> bool:
        claim = self.claim()
        if claim:
            execute(claim)
        return claim is not None

    def look(self) -> bool:
        done = (
            dispatch(Rules()).dispatched + timers.wake_due(100) + waits.end_due(100).runs + outbox.deliver_inside(100)
        )
        return bool(done + sessions.hand_over_free())

    def later(self, run: Run) -> Run:
        """What it waits for by time is due, and so is its backoff."""
        sleeping = Wait.objects.filter(run=run, status="open").exclude(due_at=None)
        sleeping.update(created_at=F("created_at") - (F("due_at") - Now()), due_at=Now())
        execute_sql("UPDATE runs_run SET due_at = clock_timestamp() WHERE id = %s AND due_at IS NOT NULL", [run.id])
        return self.go_on(run)

    def crash(self, run: Run) -> Run:
        """Its process died over it: another claim begins."""
        connection.close()
        Run.objects.filter(pk=run.pk).update(status="queued", ready_at=Now(), epoch=F("epoch") + 1)
        return self.go_on(run)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(monkeypatch)
