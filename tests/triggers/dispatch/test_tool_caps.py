"""Which tools LLM calls may use: stored on the trigger, handed to the run and its children; code narrows, an operator widens."""

from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.native_tools import WebSearchTool

from agents import Agent, AgentRun, on, registry
from agents.exceptions import DeclarationError
from agents.testing import run_agent
from runs.models import Run
from runs.models.policy import Policy
from tests.support.durable import Lab, lab
from tests.support.triggers import make_event, make_trigger
from triggers.api.events_json import TriggerSerializer
from triggers.declarations.overrides import override, reset_overrides
from triggers.declarations.sync import sync
from triggers.exceptions import Invalid
from triggers.models import Trigger

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def llm_agent(seen: list[list[str]], **options: Any) -> LlmAgent[Any, Any]:
    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        natives = [tool.kind for tool in info.model_request_parameters.native_tools]
        seen.append(sorted([*(tool.name for tool in info.function_tools), *natives]))
        return ModelResponse(parts=[TextPart("ok")])

    model = FunctionModel(answer, profile={"supported_native_tools": frozenset({WebSearchTool})})
    llm = LlmAgent(model, name="tooled", **options)

    def one() -> int:
        return 1

    for name in ("read", "write", "pay"):
        llm.tool_plain(name=name)(one)
    return llm


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Any:
    def declare(tools: Sequence[str] | None) -> list[str]:
        agent = Agent(
            name="capped",
            body=lambda run: None,
            durable=True,
            triggers=(on.event("come"),),
            tools=None if tools is None else tuple(tools),
        )
        monkeypatch.setattr(registry, "_agents", {"capped": agent})
        return [str(change) for change in sync()]

    return declare


@pytest.mark.parametrize(
    ("cap", "of_the_call", "usable"),
    [
        (None, None, ["pay", "read", "write"]),
        (["read", "pay"], None, ["pay", "read"]),
        (["read", "pay"], ["read", "write"], ["read"]),
        (None, ["write"], ["write"]),
        ([], None, []),
        ([], ["write"], []),
    ],
)
def test_a_run_may_use_what_its_trigger_allows_and_the_call_names(
    lab: Lab, cap: list[str] | None, of_the_call: list[str] | None, usable: list[str]
) -> None:
    seen: list[list[str]] = []
    llm = llm_agent(seen)
    lab.declare(lambda run: run.llm(llm, "go", tools=of_the_call).output, name="capped")
    make_trigger("capped", types=["come"], tools=cap)
    make_event(type="come")

    while lab.look() or lab.claim_and_execute():
        pass

    assert (Run.objects.get().status, seen) == ("succeeded", [usable])
    assert Run.objects.get().policy["tools"] == cap


def test_the_cap_counts_for_tools_that_a_provider_runs() -> None:
    seen: list[list[str]] = []
    llm = llm_agent(seen, capabilities=[])
    agent = Agent(name="x", body=lambda run: run.llm(llm, "go").output, durable=True, tools=("read", "web_search"))

    run_agent(agent)

    assert seen == [["read"]]


def test_a_child_may_use_no_more_than_its_parent(lab: Lab) -> None:
    seen: list[list[str]] = []
    llm = llm_agent(seen)
    lab.declare(lambda run: run.llm(llm, "go").output, name="wide")
    lab.declare(lambda run: run.llm(llm, "go").output, name="narrow", tools=("read", "write"))

    def body(run: AgentRun) -> None:
        run.gather(run.spawn("wide"), run.spawn("narrow"))

    lab.run(body, policy={"tools": ["read", "pay"]})
    lab.run(body, policy={"tools": None})

    assert sorted(seen) == sorted([["pay", "read"], ["read"], ["pay", "read", "write"], ["read", "write"]])


def test_a_deploy_narrows_and_does_not_widen(declare: Any) -> None:
    declare(["read", "write"])
    declare(["read"])
    assert Trigger.objects.get().tools == ["read"]

    changes = declare(["read", "pay"])
    assert Trigger.objects.get().tools == ["read"]
    assert "tools: the code requests pay, which an operator must allow first" in changes[0]
    declare(None)
    assert Trigger.objects.get().tools == ["read"]
    assert not Trigger.objects.get().overrides
    declare([])
    assert Trigger.objects.get().tools == []


def test_an_operator_widens_and_a_deploy_keeps_that_until_it_is_reset(declare: Any) -> None:
    declare(["read"])
    override(Trigger.objects.get(), {"tools": ["read", "pay"]}, by="ann")
    declare(["read", "write"])
    assert Trigger.objects.get().tools == ["read", "pay"]

    reset_overrides(Trigger.objects.get(), ["tools"], by="ann")
    declare(["read", "write"])
    assert Trigger.objects.get().tools == ["read", "write"]


def test_a_cap_that_makes_no_sense_is_refused(declare: Any) -> None:
    declare(None)

    with pytest.raises(Invalid, match="list of names"):
        override(Trigger.objects.get(), {"tools": "read"}, by="ann")
    with pytest.raises(DeclarationError, match="list of names"):
        from agents.agent import agent

        agent("x", tools="read")(lambda run: None)


def test_a_policy_that_this_version_cannot_read_allows_no_capped_tool() -> None:
    assert Policy.of_run({"retries": "many", "tools": ["read"]}).tools == ()
    assert Policy.of_run({"tools": {"new": "format"}}).tools == ()
    assert Policy.of_run({"retries": "many"}).tools is None


def test_the_api_shows_the_cap() -> None:
    assert TriggerSerializer(make_trigger("x", tools=["read"])).data["tools"] == ["read"]
