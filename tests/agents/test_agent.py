from datetime import timedelta
from typing import Any

import pytest

from agents import Agent, AgentRun, agent, on, registry
from agents.exceptions import DeclarationError


def test_a_declared_agent_is_registered_by_its_name_with_its_policy() -> None:
    @agent("greeter", triggers=[on.event("visitor.came")], key="event.data.id", timeout="30s", retries=1, queue="front")
    def greeter(run: AgentRun) -> None:
        pass

    assert registry.get("greeter") is greeter
    assert greeter in registry.all_agents()
    assert (greeter.timeout, greeter.retries, greeter.queue) == (timedelta(seconds=30), 1, "front")
    assert greeter.triggers == (on.event("visitor.came"),)


def test_all_agents_come_in_the_order_of_their_names() -> None:
    names = [each.name for each in registry.all_agents()]

    assert names == sorted(names)


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        registry.get("nobody")


def test_two_agents_of_one_name_are_refused_with_their_modules() -> None:
    declare("twin", one)

    with pytest.raises(DeclarationError, match=rf"two agents are called 'twin'.*{__name__}"):
        declare("twin", other)


def test_the_same_body_may_be_declared_again_as_when_its_module_is_imported_twice() -> None:
    declare("again", one)
    again = declare("again", one)

    assert registry.get("again") is again


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 10}, "priority 10"),
        ({"priority": -1}, "priority -1"),
        ({"retries": -1}, "retries"),
        ({"pause_after": -1}, "pause_after"),
    ],
)
def test_a_senseless_declaration_names_the_agent_and_the_mistake(options: dict[str, Any], message: str) -> None:
    with pytest.raises(DeclarationError, match=f"'odd'.*{message}"):
        agent("odd", **options)


def test_a_version_changes_with_the_code_of_the_body_and_with_nothing_else() -> None:
    assert declare("a", one).version == declare("b", one).version
    assert declare("a", one).version != declare("c", other).version


def one(run: AgentRun) -> int:
    return 1


def other(run: AgentRun) -> int:
    return run.attempt + 1


def declare(name: str, body: Any) -> Agent:
    return agent(name)(body)
