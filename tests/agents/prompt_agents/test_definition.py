"""Fields of a version of a prompt agent, and what is refused."""

from typing import Any

import pytest

from agents.prompt_agents.definition import PREFIX, Definition

GOOD: dict[str, Any] = {"instructions": "Look at failed runs."}


def test_a_definition_survives_its_json() -> None:
    definition = Definition(**GOOD, tools=("failed_runs",), notify_to=("ops",), emit="triage.done", ask_first=True)

    assert Definition.load(definition.dump()) == definition
    assert list(definition.faults()) == []


def test_a_field_of_another_version_of_wakeful_is_ignored() -> None:
    assert Definition.load({**GOOD, "mood": "cheerful"}) == Definition(**GOOD)


def test_the_version_of_a_prompt_agent_follows_every_field() -> None:
    fields: list[dict[str, Any]] = [
        {}, {"instructions": "Look."}, {"model": "openai:x"}, {"tools": ("a",)}, {"session": "ops"}, {"notify": False},
        {"notify_to": ("ops",)}, {"emit": "a.b"}, {"ask_first": True},
    ]  # fmt: skip
    versions = {Definition(**{**GOOD, **one}).version for one in fields}

    assert len(versions) == len(fields)
    assert all(version.startswith(PREFIX) for version in versions)


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"instructions": " "}, "instructions"),
        ({"instructions": "x" * 20_001}, "instructions"),
        ({"instructions": "a\x00b"}, "instructions"),
        ({"model": 7}, "model"),
        ({"tools": ("",)}, "tools"),
        ({"tools": ("a", "a")}, "tools"),
        ({"tools": "failed_runs"}, "tools"),
        ({"notify": "yes"}, "notify"),
        ({"emit": "run.signal"}, "emit"),
        ({"emit": "wakeful.news"}, "emit"),
        ({"notify": False, "notify_to": ("ops",)}, "notify_to"),
        ({"notify": False, "ask_first": True}, "ask_first"),
    ],
)
def test_each_fault_names_its_field(wrong: dict[str, Any], field: str) -> None:
    [fault] = Definition(**{**GOOD, **wrong}).faults()

    assert fault.startswith(f"{field}: ")
