"""What would lead past the journal, the tool cap or the budgets of a run, and is refused by name."""

from typing import Any

from agents.exceptions import Permanent
from agents.frameworks.tools import require_in_cap
from agents.guards.openai_agents import Given
from agents.llm.costs.estimate import OUTPUT_BOUNDS
from agents.openai.messages import tools_called

EXTRA = ("extra_body", "extra_args")  # model settings that go to the provider as they are
OF_PRICE = (*OUTPUT_BOUNDS, "model", "n")
OF_TOOLS = ("tools", "functions")


def require_no_session(named: Given) -> None:
    if named.get("session") is not None:
        raise Permanent(
            "session= in run.openai: a session is written outside of the journal, and would have the turns of each replay. Give the "
            "history in the input, and keep result.to_input_list() in run.state"
        )


def require_admissible(input: Any, named: Given, cap: frozenset[str] | None) -> None:
    """`Runner.run` with this input and these options. A `RunState` has calls that no answer of this run has made."""
    require_no_session(named)
    if hasattr(input, "get_interruptions"):
        for tool in tools_called([call.raw_item for call in input.get_interruptions()]):
            require_in_cap(tool, cap)


def require_its_own_tools(given: Given, cap: frozenset[str] | None) -> None:
    """Under a tool cap, the tools of a request are those of its agent."""
    if cap is None:
        return
    if given.get("prompt"):
        raise Permanent(
            "prompt= of an agent under a tool cap: a prompt that the provider keeps may have tools of its own"
        )
    if extra := _extra(given, OF_TOOLS):
        raise Permanent(f"{extra} of the model settings under a tool cap: give the tools to the agent")


def require_reserved(given: Given) -> None:
    """Under a cap of money or tokens, what decides the price of a request is what has been reserved."""
    if extra := _extra(given, OF_PRICE):
        raise Permanent(
            f"{extra} of the model settings, for which nothing is reserved: under a cap set max_tokens and the model themselves"
        )


def _extra(given: Given, names: tuple[str, ...]) -> str:
    """The first of these names that is in the extra settings, with its place."""
    for place in EXTRA:
        values = getattr(given["model_settings"], place, None) or {}
        for name in names:
            if isinstance(values, dict) and name in values:
                return f"{place}[{name!r}]"
    return ""
