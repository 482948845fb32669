"""The SDK, whose import name is `agents`: outside of the installed package that is another package."""

from importlib import import_module
from typing import Any

from agents.exceptions import Permanent
from agents.guards.openai_agents import IS_REACHABLE, SDK


def sdk() -> Any:
    """Permanent: it is not installed, or its name is taken."""
    if not IS_REACHABLE:
        raise Permanent(
            "run.openai works where Wakeful is installed as a package: openai-agents has the import name `agents`, which in a tree is "
            "Wakeful's own. docs/package.md shows how to make and install the wheel"
        )
    try:
        found: Any = import_module(SDK)
    except ModuleNotFoundError as error:
        if error.name != SDK:
            raise
        found = None
    if not hasattr(found, "Runner"):
        raise Permanent(
            'run.openai needs openai-agents, the extra "openai-agents": pip install "wakeful[openai-agents]" in the environment of all '
            "workers, where no other package named `agents` stands before it"
        )
    return found
