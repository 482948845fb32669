"""Prompt agents are made, edited and deleted: each edit a version with its author, and nothing half done."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from agents import Report, registry
from agents.agent import Agent
from agents.budget import Budget as Caps
from agents.models import Checklist, PromptAgent, PromptAgentVersion
from agents.prompt_agents import catalog
from agents.prompt_agents.definition import Definition
from runs.actions.checklists import ItemEdit, edit_checklist
from runs.exceptions import IllegalState
from runs.models import AuditEntry, Budget
from tests.support.console import make_source
from tests.support.prompt_agents import SAYS, make_prompt_agent
from tests.support.triggers import make_trigger
from triggers.declarations.overrides import override
from triggers.dispatch.rules import Rules
from triggers.exceptions import Invalid, RuleError
from triggers.models import Schedule, Trigger
from triggers.prompt_agents import edit
from triggers.prompt_agents.as_json import caps_of, read
from triggers.prompt_agents.edit import (
    changes,
    create_prompt_agent,
    delete_prompt_agent,
    edit_prompt_agent,
    newest_of,
    restore_prompt_agent,
)
from triggers.prompt_agents.wakes import OnEvents, OnSchedule, add_wake
from triggers.schedules.rules.words import read_rule

MORNING = OnSchedule(rule=read_rule("every weekday at 08:00", "Europe/Vienna"))


def left() -> tuple[int, ...]:
    models: list[Any] = [PromptAgent, PromptAgentVersion, Trigger, Schedule, Checklist, Budget, AuditEntry]
    return tuple(model.objects.count() for model in models)


@pytest.mark.django_db
def test_the_runs_of_a_wake_have_its_reports() -> None:
    reports = (Report(on="failure", notify="ops"),)
    make_prompt_agent("triage")

    made = [add_wake("triage", replace(one, reports=reports), by="ada") for one in (MORNING, OnEvents(types=["a"]))]

    assert [trigger.policy["reports"] for trigger in made] == [[{"on": "failure", "notify": ["ops"]}]] * 2
    [given] = read({"when": [{"events": ["a"], "reports": [{"on": "failure", "notify": ["ops"]}]}]}).when
    assert given.reports == reports


@pytest.mark.django_db
def test_a_prompt_agent_is_made_with_its_triggers_checklist_and_budget() -> None:
    make_source("billing")
    agent = make_prompt_agent(
        when=[MORNING, OnEvents(types=["invoice.*"], source="billing", filter="event.data.amount > 100")],
        checklist=[ItemEdit(text="Are there failed runs?")],
        budget=Caps(day_usd="1", run_tokens=50_000),
        tools=("failed_runs",),
    )

    assert (agent.newest, newest_of(agent).by) == (1, "ada")
    clock, events = Trigger.objects.filter(agent="triage").order_by("slug")
    assert (clock.slug, clock.schedules.get().task.name, clock.overlap) == ("triage", "triage", "skip")
    assert (events.slug, events.types, events.source, events.overlap) == ("triage-2", ["invoice.*"], "billing", "queue")
    assert [item.text for item in Checklist.objects.get(agent="triage").items.all()] == ["Are there failed runs?"]
    assert caps_of("triage") == {"day_usd": "1", "run_tokens": "50000"}
    assert AuditEntry.objects.filter(kind="promptagent", action="create", by="ada").exists()


@pytest.mark.django_db(transaction=True)
def test_the_dispatcher_loads_the_triggers_of_a_new_prompt_agent_as_durable() -> None:
    rules = Rules()
    rules.current()

    make_prompt_agent(when=[OnEvents(types=["a.b"])])
    registry.know_prompt_agents({})  # another process, which has not looked

    [rule] = rules.current().by_id.values()
    assert (rule.agent, rule.policy.durable, rule.policy.hold_key) == ("triage", True, True)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("name", "fields", "fault"),
    [
        ("Triage", {}, "name: must be lower-case"),
        ("code", {}, "name: an agent in code is called 'code'"),
        ("triage", {"tools": ("gone",)}, "tools: no tool 'gone' is registered; there are failed_runs"),
        ("triage", {"instructions": ""}, "instructions: are missing"),
        ("triage", {"when": [OnEvents(types=["a"], source="gone")]}, "source: no source 'gone' exists"),
        ("triage", {"when": [MORNING, OnEvents(types=["a"], filter="event.")]}, "filter: "),
    ],
)
def test_a_wrong_one_leaves_nothing(name: str, fields: dict[str, Any], fault: str) -> None:
    registry.register(Agent(name="code", body=lambda run: None))
    before = left()

    with pytest.raises(Invalid, match=fault):
        make_prompt_agent(name, **fields)

    assert left() == before


@pytest.mark.django_db
def test_a_schedule_that_never_fires_leaves_nothing() -> None:
    before = left()

    with pytest.raises(RuleError):
        make_prompt_agent(when=[OnSchedule(rule=read_rule("at 2001-01-01T09:00"))])

    assert left() == before


@pytest.mark.django_db
def test_triggers_of_a_prompt_agent_avoid_names_that_are_taken() -> None:
    make_trigger("triage", agent="greeter")

    make_prompt_agent(when=[MORNING, MORNING])

    assert sorted(Trigger.objects.filter(agent="triage").values_list("slug", flat=True)) == ["triage-2", "triage-3"]


@pytest.mark.django_db
def test_a_name_is_used_once() -> None:
    make_prompt_agent()

    with pytest.raises(Invalid, match="a prompt agent 'triage' exists"):
        make_prompt_agent()


@pytest.mark.django_db
def test_a_prompt_agent_over_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edit, "MOST", 1)
    make_prompt_agent()

    with pytest.raises(IllegalState, match="There are 1 prompt agents"):
        make_prompt_agent("other")


# Edits


@pytest.mark.django_db
def test_an_edit_is_a_version_with_its_author_and_what_changed() -> None:
    agent = make_prompt_agent()

    edited = edit_prompt_agent(agent.pk, Definition(instructions=SAYS, model="openai:x"), by="bob", version=1)

    assert (edited.newest, newest_of(edited).by) == (2, "bob")
    first, second = (Definition.load(one.definition) for one in agent.versions.order_by("number"))
    assert [(one.what, one.before, one.after) for one in changes(first, second)] == [("model", "", "openai:x")]
    assert AuditEntry.objects.get(kind="promptagent", action="edit").detail == {"version": 2, "changed": ["model"]}


@pytest.mark.django_db
def test_the_same_definition_is_no_edit() -> None:
    agent = make_prompt_agent()

    assert edit_prompt_agent(agent.pk, Definition(instructions=SAYS), by="bob").newest == 1
    assert not AuditEntry.objects.filter(action="edit").exists()


@pytest.mark.django_db
def test_an_edit_of_an_older_version_is_refused() -> None:
    agent = make_prompt_agent()
    edit_prompt_agent(agent.pk, Definition(instructions="Look twice."), by="bob", version=1)

    with pytest.raises(IllegalState, match="was edited meanwhile: it has version 2, not 1"):
        edit_prompt_agent(agent.pk, Definition(instructions="Look thrice."), by="ada", version=1)

    assert newest_of(PromptAgent.objects.get()).definition["instructions"] == "Look twice."


@pytest.mark.django_db
def test_in_an_upgrade_an_edit_loses_nothing_that_only_the_newer_version_knows() -> None:
    agent = make_prompt_agent()
    stored = newest_of(agent).definition

    def save(**unknown: Any) -> None:
        agent.newest += 1
        agent.save()
        PromptAgentVersion.objects.create(
            agent=agent, number=agent.newest, fingerprint="prompt:newer", definition=stored | unknown, by="eve"
        )

    save(voices=["calm"], whispers=False)
    with pytest.raises(IllegalState, match="saved by a newer version of Wakeful, with voices, which an edit"):
        edit_prompt_agent(agent.pk, Definition(instructions="Look twice."), by="bob")
    save(voices=[], whispers=False)
    edit_prompt_agent(agent.pk, Definition(instructions="Look twice."), by="bob")

    assert newest_of(PromptAgent.objects.get()).definition["instructions"] == "Look twice."


@pytest.mark.django_db(transaction=True)
def test_one_of_two_simultaneous_edits_is_refused() -> None:
    agent = make_prompt_agent()
    refused: list[Exception] = []

    def edited(text: str) -> None:
        try:
            edit_prompt_agent(agent.pk, Definition(instructions=text), by=text, version=1)
        except IllegalState as error:
            refused.append(error)
        finally:
            connection.close()

    both = [threading.Thread(target=edited, args=[text]) for text in ("one", "two")]
    for one in both:
        one.start()
    for one in both:
        one.join()

    assert len(refused) == 1
    assert PromptAgent.objects.get().newest == PromptAgentVersion.objects.count() == 2


# Deletion


@pytest.mark.django_db
def test_a_deleted_one_is_unknown_and_its_triggers_are_off() -> None:
    agent = make_prompt_agent(when=[MORNING, OnEvents(types=["a.b"])])

    delete_prompt_agent(agent.pk, by="bob")

    catalog.refresh(at_once=True)
    assert "triage" not in {one.name for one in registry.all_agents()}
    assert not Trigger.objects.filter(agent="triage", enabled=True).exists()
    assert not Schedule.objects.filter(task__enabled=True, trigger__agent="triage").exists()
    with pytest.raises(IllegalState, match="is deleted already"):
        delete_prompt_agent(agent.pk, by="bob")
    with pytest.raises(IllegalState, match="Restore it first"):
        edit_prompt_agent(agent.pk, Definition(instructions="x"), by="bob")


@pytest.mark.django_db
def test_a_restored_one_is_known_and_its_triggers_stay_off() -> None:
    agent = make_prompt_agent(when=[MORNING])
    delete_prompt_agent(agent.pk, by="bob")

    restore_prompt_agent(agent.pk, by="bob")

    catalog.refresh(at_once=True)
    assert registry.get("triage").durable
    assert not Trigger.objects.get(slug="triage").enabled


@pytest.mark.django_db
def test_the_name_of_a_deleted_one_may_be_used_again_and_its_versions_go_on() -> None:
    agent = make_prompt_agent(checklist=[ItemEdit(text="a")])
    delete_prompt_agent(agent.pk, by="bob")

    again = make_prompt_agent(instructions="Look again.")

    assert (again.pk, again.newest, again.is_deleted) == (agent.pk, 2, False)
    assert Checklist.objects.get(agent="triage").items.count() == 1


@pytest.mark.django_db
def test_a_prompt_agent_whose_name_an_agent_in_code_has_is_not_restored() -> None:
    agent = make_prompt_agent()
    delete_prompt_agent(agent.pk, by="bob")
    registry.register(Agent(name="triage", body=lambda run: None))

    with pytest.raises(Invalid, match="an agent in code is called 'triage'"):
        restore_prompt_agent(agent.pk, by="bob")


@pytest.mark.django_db
def test_a_deploy_leaves_its_checklist_triggers_and_budget_alone() -> None:
    from runs.actions.checklists import declared_checklists, sync_checklists
    from runs.budgets.declarations import sync_budgets
    from triggers.declarations.sync import sync

    make_prompt_agent(when=[MORNING], checklist=[ItemEdit(text="a")], budget=Caps(day_usd="1"))
    sync(), sync_budgets("deploy"), sync_checklists(declared_checklists())

    assert Trigger.objects.get(slug="triage").enabled
    assert Budget.objects.get(name="triage").cap == 1
    assert Checklist.objects.get(agent="triage").revision == 1
    edit_checklist(Checklist.objects.get(agent="triage").pk, [ItemEdit(text="b")], by="ada")
    add_wake("triage", OnEvents(types=["a.b"]), by="ada")


@pytest.mark.django_db
def test_sync_agents_reports_an_agent_in_code_with_the_name_of_a_prompt_agent() -> None:
    from agents import agent, on
    from triggers.declarations.sync import sync

    make_prompt_agent(when=[MORNING])
    agent("triage", triggers=[on.event("a.b")])(lambda run: None)

    [left] = [change for change in sync() if change.slug == "triage"]

    assert str(left) == (
        "left alone triage (a prompt agent has this name: rename the agent in code, or delete the prompt agent)"
    )
    assert Trigger.objects.get(slug="triage").declared is None


@pytest.mark.django_db
def test_an_unknown_agent_wakes_by_nothing() -> None:
    with pytest.raises(Invalid, match="no agent 'gone' is installed"):
        add_wake("gone", OnEvents(types=["a.b"]), by="ada")
    with pytest.raises(RuleError, match="no agent 'gone' is installed"):
        add_wake("gone", MORNING, by="ada")


@pytest.mark.django_db
def test_create_takes_the_name_of_its_author() -> None:
    create_prompt_agent("triage", Definition(instructions="x"), by="admin:ada")

    assert set(AuditEntry.objects.values_list("by", flat=True)) == {"admin:ada"}


@pytest.mark.django_db
def test_a_restored_one_counts_towards_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = make_prompt_agent()
    delete_prompt_agent(agent.pk, by="bob")
    monkeypatch.setattr(edit, "MOST", 1)
    make_prompt_agent("other")

    with pytest.raises(IllegalState, match="There are 1 prompt agents"):
        restore_prompt_agent(agent.pk, by="bob")


@pytest.mark.django_db
def test_a_trigger_that_was_enabled_while_its_agent_was_deleted_is_disabled_by_its_return() -> None:
    agent = make_prompt_agent(when=[OnEvents(types=["a.b"])])
    delete_prompt_agent(agent.pk, by="bob")
    override(Trigger.objects.get(slug="triage"), {"enabled": True}, "bob")

    restore_prompt_agent(agent.pk, by="bob")

    assert not Trigger.objects.get(slug="triage").enabled


@pytest.mark.django_db
def test_deletion_of_a_prompt_agent_keeps_the_triggers_of_an_agent_in_code_of_its_name_on() -> None:
    from agents import agent, on
    from triggers.declarations.sync import sync

    made = make_prompt_agent(when=[MORNING])
    agent("triage", triggers=[on.every("1h", slug="of-code")])(lambda run: None)
    sync()

    delete_prompt_agent(made.pk, by="bob")

    assert list(Trigger.objects.filter(agent="triage", enabled=True).values_list("slug", flat=True)) == ["of-code"]
    assert Schedule.objects.get(trigger__slug="of-code").task.enabled


@pytest.mark.django_db
@pytest.mark.parametrize("was", [[MORNING], [OnEvents(types=["x.y"])]])
@pytest.mark.parametrize("rule", ["", "1h"])
def test_code_takes_over_the_trigger_that_a_deleted_one_has_left(was: list[Any], rule: str) -> None:
    from agents import agent, on
    from triggers.declarations.sync import sync

    made = make_prompt_agent(when=was)
    declared = on.every(rule, slug="triage") if rule else on.event("a.b", slug="triage")
    agent("triage", triggers=[declared])(lambda run: None)
    delete_prompt_agent(made.pk, by="bob")

    sync()

    trigger = Trigger.objects.get(slug="triage")
    assert (trigger.enabled, trigger.overrides) == (True, [])
    assert trigger.types == ([] if rule else ["a.b"])
    assert [one.task.enabled for one in trigger.schedules.all()] == ([True] if rule else [])
    assert sync() == []
