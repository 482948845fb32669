"""The toolbox: tools by name, those of Wakeful and those of apps."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import RunContext

from agents import AgentRun, tool
from agents.agent import Agent
from agents.exceptions import DeclarationError, Permanent
from agents.testing import run_agent
from agents.tools import toolbox
from tests.support.llm import Turns

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    toolbox.all_tools()  # those of Wakeful are found
    known = dict(toolbox._tools)
    yield
    toolbox._tools.clear()
    toolbox._tools.update(known)


def declared(name: str = "open_tickets", **options: Any) -> Any:
    @tool(name=name, **options)
    def open_tickets(ctx: RunContext[AgentRun], customer: str) -> str:
        """The open tickets of a customer."""
        return f"2 of {customer}, asked by {ctx.deps.agent}"

    return open_tickets


def test_a_declared_tool_is_found_by_its_name_and_knows_its_run() -> None:
    declared(effect="read", trusted=True)
    found = toolbox.get("open_tickets")
    assert found.metadata == {"effect": "read", "dangerous": False, "trusted": True}
    assert found in toolbox.all_tools()

    turns = Turns([("open_tickets", {"customer": "Ada"})], "done")
    seen: list[str] = []

    def body(run: AgentRun) -> None:
        result = run.llm(LlmAgent(turns.model, name="desk", tools=[found]), "How many?", deps=run)
        seen.extend(
            str(part.content)
            for message in result.all_messages()
            for part in message.parts
            if part.part_kind == "tool-return"
        )

    run_agent(Agent(name="desk", body=body, durable=True), may_ask_providers=True)

    assert "2 of Ada, asked by desk" in seen[0]


def test_tools_are_given_by_name_beside_functions() -> None:
    [notify, same] = toolbox.named(["notify", len])

    assert (notify, same) == (toolbox.get("notify"), len)
    with pytest.raises(
        Permanent, match="there is no tool norify; the tools are: add_note, ask_human, draft_mail, emit"
    ):
        toolbox.named(["norify"])


def test_two_tools_of_one_name_are_refused() -> None:
    declared()
    with pytest.raises(DeclarationError, match="two tools are called 'open_tickets'"):
        declared()


def test_an_app_cannot_take_the_name_of_a_tool_of_wakeful() -> None:
    with pytest.raises(DeclarationError, match=r"two tools are called 'notify': agents\.tools\.notify and"):
        declared("notify")


@pytest.mark.parametrize(
    ("options", "message"), [({"effect": "once"}, "effect 'once'"), ({"expires": "soon"}, "expires")]
)
def test_metadata_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        declared(**options)


def test_a_tool_without_a_docstring_is_refused() -> None:
    with pytest.raises(DeclarationError, match="docstring"):

        @tool()
        def silent() -> None: ...


def test_every_tool_of_wakeful_declares_its_effect_and_has_a_description() -> None:
    mine = [found for found in toolbox.all_tools() if found.function.__module__.startswith("agents.tools.")]

    assert {found.name for found in mine} >= {
        "ask_human", "emit", "failed_runs", "http_get", "notify", "query", "remind_me", "schedule", "wake_me"
    }  # fmt: skip
    assert not [found.name for found in mine if "effect" not in (found.metadata or {}) or not found.description]


def test_the_import_of_the_declaration_does_not_import_pydantic_ai() -> None:
    import subprocess
    import sys

    looked = "import agents, sys; sys.exit('pydantic_ai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", looked], check=False, timeout=60).returncode == 0
