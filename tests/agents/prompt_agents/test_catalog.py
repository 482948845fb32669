"""Every process learns of prompt agents by a look, and runs end with the version that they began with."""

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from agents import registry
from agents.agent import Agent
from agents.exceptions import Permanent
from agents.models import PromptAgent, PromptAgentVersion
from agents.prompt_agents import catalog
from agents.prompt_agents.definition import Definition
from tests.support.prompt_agents import make_prompt_agent
from triggers.prompt_agents.edit import delete_prompt_agent, edit_prompt_agent, newest_of, restore_prompt_agent

pytestmark = pytest.mark.django_db


def test_a_look_brings_new_edited_deleted_and_restored_agents() -> None:
    agent = make_prompt_agent()
    first = registry.get("triage").version

    edit_prompt_agent(agent.pk, Definition(instructions="Look twice."), by="ada")
    catalog.refresh(at_once=True)
    second = registry.get("triage").version
    delete_prompt_agent(agent.pk, by="ada")
    catalog.refresh(at_once=True)
    with pytest.raises(KeyError):
        registry.get("triage")
    restore_prompt_agent(agent.pk, by="ada")
    catalog.refresh(at_once=True)

    assert first != second == registry.get("triage").version


def test_a_process_looks_once_a_second_and_reads_each_version_once() -> None:
    make_prompt_agent()
    with CaptureQueriesContext(connection) as queries:
        for _ in range(5):
            catalog.refresh()
    assert len(queries) == 0

    with CaptureQueriesContext(connection) as queries:
        catalog.refresh(at_once=True)
    assert len(queries) == 1


def test_a_run_ends_with_the_version_that_it_began_with() -> None:
    agent = make_prompt_agent()
    began = newest_of(agent).fingerprint
    edit_prompt_agent(agent.pk, Definition(instructions="Look twice."), by="ada")
    delete_prompt_agent(agent.pk, by="ada")
    catalog._kept = {}

    assert catalog.begun("triage", began).version == began


def test_a_version_that_is_gone_is_named() -> None:
    with pytest.raises(Permanent, match="the version prompt:0 of prompt agent 'triage'"):
        catalog.begun("triage", "prompt:0")


def test_an_unreadable_version_does_not_stop_other_prompt_agents_from_loading() -> None:
    agent = make_prompt_agent("broken")
    make_prompt_agent()
    PromptAgentVersion.objects.create(agent=agent, number=2, fingerprint="prompt:1", definition={"mood": 1}, by="sql")
    agent.newest = 2
    agent.save()

    catalog.refresh(at_once=True)

    assert registry.get("triage").durable
    assert "broken" not in {one.name for one in registry.all_agents()}
    with pytest.raises(Permanent, match="cannot be read"):
        catalog.begun("broken", "prompt:1")


def test_an_agent_in_code_keeps_its_name() -> None:
    began = newest_of(make_prompt_agent()).fingerprint
    in_code = registry.register(Agent(name="triage", body=lambda run: None))
    catalog.refresh(at_once=True)

    assert registry.get("triage") is in_code
    assert [agent for agent in registry.all_agents() if agent.name == "triage"] == [in_code]
    assert catalog.begun("triage", began).version == began  # of a run that began before the deploy


def test_the_database_refuses_to_change_a_version() -> None:
    make_prompt_agent()

    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        PromptAgentVersion.objects.update(definition={})


def test_a_version_that_another_wakeful_wrote_keeps_its_fingerprint() -> None:
    agent = make_prompt_agent()
    newer = {**Definition(instructions="Look twice.").dump(), "field_of_another_version": 1}
    PromptAgentVersion.objects.create(agent=agent, number=2, fingerprint="prompt:newer", definition=newer, by="ada")
    PromptAgent.objects.update(newest=2)

    catalog.refresh(at_once=True)

    assert registry.get("triage").version == "prompt:newer"
    catalog._kept = {}
    assert catalog.begun("triage", "prompt:newer").version == "prompt:newer"
