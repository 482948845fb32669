"""Problems of prompt agents: a name that code has taken, a tool that is gone, and runs of a deleted one."""

from datetime import timedelta

import pytest
from django.utils import timezone

from agents import registry
from agents.agent import Agent
from agents.models import PromptAgentVersion
from config.health.problems import problems
from config.health.situation import read_situation
from runs.sign import Problem
from tests.support.console import make_worker
from tests.support.prompt_agents import make_prompt_agent
from tests.support.runs import make_run
from triggers.prompt_agents.edit import delete_prompt_agent

pytestmark = pytest.mark.django_db


def found(prefix: str) -> list[Problem]:
    return [problem for problem in problems(read_situation()) if problem.name.startswith(prefix)]


def test_a_deploy_that_takes_a_name_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    make_prompt_agent()
    assert found("prompt-agent") == []
    monkeypatch.setattr(registry, "_agents", dict(registry._agents))
    registry.register(Agent(name="triage", body=lambda run: None))

    [problem] = found("prompt-agent")

    assert (problem.name, problem.severity) == ("prompt-agent-name:triage", "bad")
    assert "starts no more runs" in problem.text


def test_a_tool_that_is_gone_is_a_problem_until_the_agent_is_deleted() -> None:
    agent = make_prompt_agent(tools=("failed_runs",))
    assert found("prompt-agent") == []
    agent.newest = 2
    agent.save()
    PromptAgentVersion.objects.create(
        agent=agent, number=2, fingerprint="x", definition={"instructions": "x", "tools": ["gone"]}, by="test"
    )

    [problem] = found("prompt-agent")
    assert problem.name == "prompt-agent-tools:triage"
    assert "gone" in problem.text
    delete_prompt_agent(agent.pk, by="test")
    assert found("prompt-agent") == []


def test_runs_of_a_deleted_one_wait_with_the_reason() -> None:
    agent = make_prompt_agent()
    delete_prompt_agent(agent.pk, by="test")
    make_worker(agents=["greeter"])
    make_run(agent="triage", ready_at=timezone.now() - timedelta(minutes=10))

    [problem] = found("homeless")

    assert "triage" in problem.text
    assert "Deleted prompt agents: triage; restore them" in problem.remedy
