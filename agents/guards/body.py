"""What holds while the body of a run executes: agents and models of libraries pass neither its journal nor its budgets by."""

from collections.abc import Iterator
from contextlib import contextmanager

from agents.guards import llm_calls, openai_agents
from agents.guards.bodies import counted
from agents.guards.libraries import guard_modules

GUARDS = {**llm_calls.GUARDS, **openai_agents.GUARDS}


@contextmanager
def within_body() -> Iterator[None]:
    guard_modules(GUARDS)
    with counted():
        yield
