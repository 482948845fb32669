"""An agent, or all of them, are stopped: nothing starts, what runs is ended and waits, and goes on once they are started."""

from collections.abc import Sequence
from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from config.health.problems import problems
from config.health.situation import read_situation
from runs.actions.stop_agents import EVERY, all_agents, start_agents, stop_agents
from runs.db.sql import execute
from runs.exceptions import IllegalState, UnknownAgent
from runs.models import AgentStop, AuditEntry, Worker
from runs.processes import lease
from runs.queues import doorbell
from runs.worker.parent import FENCE_STOPPED
from tests.support.durable import Lab, lab
from tests.support.runs import make_run

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("name", ["durable", EVERY])
def test_runs_of_a_stopped_agent_start_once_it_is_started(lab: Lab, name: str) -> None:
    lab.declare(lambda run: "done")
    lab.declare(lambda run: "done", name="other")
    stop_agents(name, reason="it spends too much", by="ann")
    stopped, other = make_run(trigger="durable"), make_run(trigger="other")

    lab.go_on(stopped)
    other.refresh_from_db()
    assert (stopped.status, other.status) == ("queued", "queued" if name == EVERY else "succeeded")
    start_agents(name, by="bob")
    lab.go_on(stopped)

    assert stopped.status == "succeeded"
    assert list(AuditEntry.objects.order_by("id").values_list("by", "action", "object_id")) == [
        ("ann", "stop", name),
        ("bob", "start", name),
    ]


def test_no_request_begins_once_its_agent_is_stopped_and_none_is_repeated_after(lab: Lab) -> None:
    calls: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        calls.append(len(messages))
        if len(messages) == 1:
            return ModelResponse(parts=[ToolCallPart("emergency", {}, "call-1")])
        return ModelResponse(parts=[TextPart("done")])

    llm = LlmAgent(FunctionModel(answer), name="spender")

    @llm.tool_plain(metadata={"effect": "transactional"})
    def emergency() -> str:
        AgentStop.objects.get_or_create(agent="durable", defaults={"stopped_by": "ann"})
        return "ok"

    run = lab.run(lambda run: run.llm(llm, "spend").output)
    assert (run.status, calls) == ("queued", [1])

    start_agents("durable", by="ann")
    assert (lab.go_on(run).result, calls) == ("done", [1, 3])


def running(lab: Lab) -> Sequence[lease.Running]:
    renewed = lease.renew(lab.worker.id, lease.Clock())
    assert renewed
    return renewed.running


def test_a_worker_learns_within_a_renewal_which_of_its_runs_are_stopped(lab: Lab) -> None:
    lab.declare(lambda run: None)
    make_run(trigger="durable")
    claim = lab.claim()
    assert claim
    [before] = running(lab)

    [stopped] = stop_agents("durable", reason="", by="ann")
    [after] = running(lab)

    assert (before.stopped, after.stopped) == (False, True)
    assert (stopped.id, stopped.agent) == (claim.run_id, "durable")
    assert execute(FENCE_STOPPED, [claim.run_id, claim.epoch, claim.id]) == 1


def test_no_one_rings_for_runs_that_are_stopped(lab: Lab) -> None:
    Worker.objects.update(queues=["default"], agents=["durable"])
    make_run(trigger="durable")
    assert [line.claimable for line in doorbell.read_wanted("default")] == [1]

    stop_agents(EVERY, reason="", by="ann")
    assert [line.claimable for line in doorbell.read_wanted("default")] == [0]


def test_a_stopped_agent_is_a_problem_that_shows_who_and_why(lab: Lab) -> None:
    lab.declare(lambda run: None)
    stop_agents("durable", reason="odd answers", by="ann")

    [stopped] = [problem for problem in problems(read_situation()) if problem.name == "stopped:durable"]
    assert "by ann: odd answers" in stopped.text
    assert "manage.py start --agent durable" in stopped.remedy
    assert [one.name for one in all_agents() if one.is_stopped] == ["durable"]


def test_an_agent_is_stopped_once_and_only_if_it_exists(lab: Lab) -> None:
    lab.declare(lambda run: None)
    stop_agents("durable", reason="first", by="ann")

    with pytest.raises(IllegalState, match="already"):
        stop_agents("durable", reason="second", by="bob")
    with pytest.raises(UnknownAgent, match="no agent 'durabel'"):
        stop_agents("durabel", reason="", by="ann")
    with pytest.raises(IllegalState, match="Not all agents are stopped"):
        start_agents(EVERY, by="ann")


def test_an_agent_that_was_stopped_alone_stays_stopped_when_all_are_started(lab: Lab) -> None:
    lab.declare(lambda run: None)
    stop_agents("durable", reason="", by="ann")
    stop_agents(EVERY, reason="", by="ann")
    start_agents(EVERY, by="ann")

    assert lab.go_on(make_run(trigger="durable")).status == "queued"


def test_the_command_shows_what_it_stops(lab: Lab) -> None:
    lab.declare(lambda run: None)
    make_run(trigger="durable")
    claim = lab.claim()
    assert claim
    out = StringIO()

    with pytest.raises(CommandError, match="1 of 1 runs are still running"):
        call_command("stop", all=True, reason="x", wait=0, stdout=out)
    assert f"stops run {claim.run_id} of durable" in out.getvalue()
    call_command("start", all=True, stdout=out)
    assert "All agents are started." in out.getvalue()


def test_a_stop_that_cannot_notify_is_a_stop_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as when PostgreSQL's queue of NOTIFYs is full."""
    monkeypatch.setattr("runs.actions.stop_agents.NOTIFY", "SELECT %s::text, %s::text, %s::text, 1 / 0")

    stop_agents(EVERY, reason="", by="ann")

    assert AgentStop.objects.filter(agent=EVERY).exists()
