"""Changes that runs make: their cause, and whether they wake the agent that made them."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db.models import Q

from agents import AgentRun, agent, on, registry
from runs.db.sql import execute
from runs.models import Run
from tests.support.runs import make_run
from tests.support.triggers import make_trigger
from triggers.accept import taint_changes
from triggers.declarations.sync import sync
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event, Source, Trigger
from triggers.sources.databases.tables.keep import keep_tables

pytestmark = pytest.mark.django_db


@pytest.fixture
def groups() -> Source:
    source = Source.objects.create(slug="groups", kind="table", settings={"table": "auth.Group"})
    keep_tables()
    return source


def write_as(run: Run, name: str) -> Event:
    """Write as a body of this run does."""
    execute("SELECT set_config('application_name', %s, true)", [f"wakeful:{run.id}:1"])
    Group.objects.create(name=name)
    execute("SELECT set_config('application_name', 'wakeful', true)")
    return Event.objects.order_by("seq")[Event.objects.count() - 1]


def dispatch_all() -> None:
    while dispatch(Rules()).dispatched:
        pass


def test_the_change_of_a_run_has_its_cause(groups: Source) -> None:
    run = make_run(trigger="clerk", chain=["mail"], depth=1)
    event = write_as(run, "night")

    assert (event.root_id, event.cause_event_id, event.cause_run_id) == (run.root_id, run.event_ids[-1], run.id)
    assert (event.depth, event.chain, event.is_tainted) == (2, ["mail", "clerk"], False)
    taint_changes(run.id)
    assert Event.objects.get().is_tainted

    Group.objects.create(name="day")
    other = Event.objects.order_by("seq")[1]
    assert (other.root_id, other.cause_run_id, other.depth, other.chain) == (other.id, None, 0, [])


def test_another_database_user_cannot_attribute_its_change_to_a_run(groups: Source) -> None:
    run = make_run(trigger="clerk")
    execute("CREATE ROLE wakeful_test_clerk")
    execute("GRANT ALL ON auth_group, triggers_event TO wakeful_test_clerk")
    execute("GRANT USAGE ON SEQUENCE auth_group_id_seq TO wakeful_test_clerk")
    execute("SET LOCAL SESSION AUTHORIZATION wakeful_test_clerk")
    event = write_as(run, "night")
    assert (event.cause_run_id, event.chain) == (None, [])


def test_an_own_change_is_a_decision_that_shows_it(groups: Source) -> None:
    types = {"types": ["db.auth.group.*"]}
    make_trigger("clerk", **types)
    make_trigger("asked", agent="clerk", policy={"own_changes": True}, **types)
    make_trigger("reader", **types)
    begun = make_run(trigger="clerk")
    write_as(begun, "night")
    dispatch_all()

    assert set(Run.objects.exclude(pk=begun.pk).values_list("trigger", flat=True)) == {"asked", "reader"}
    [decision] = Decision.objects.all()
    assert (decision.trigger.slug, decision.outcome) == ("clerk", "loop")
    assert decision.reason == "a run of clerk made this change, and own_changes of the trigger is off"

    Group.objects.create(name="by a person")
    dispatch_all()
    assert Run.objects.exclude(pk=begun.pk).filter(trigger="clerk").count() == 1


def test_code_declares_the_changes_that_wake_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", {})
    reopened = on.model_change(
        Group, operations=["update"], fields=["name"], when=Q(name__startswith="re") & ~Q(id=0), own_changes=True
    )

    @agent("clerk", triggers=[reopened])
    def body(run: AgentRun) -> None: ...

    sync()
    keep_tables()
    trigger = Trigger.objects.get(slug="clerk")
    assert (trigger.source, trigger.types, trigger.policy) == ("clerk", ["db.auth.group.update"], {"own_changes": True})
    assert Source.objects.get(slug="clerk").settings["condition"] == (
        '{"and": [{"name__startswith": "re"}, {"not": {"id": 0}}]}'
    )
    group = Group.objects.create(name="new")
    Group.objects.filter(pk=group.pk).update(name="reopened")
    [event] = Event.objects.all()
    assert event.data == {
        "pk": group.pk, "old": {"id": group.pk, "name": "new"}, "new": {"id": group.pk, "name": "reopened"}, "changed": ["name"],
    }  # fmt: skip
    assert sync() == []


def test_a_declaration_for_each_statement_matches_statement_events_alone() -> None:
    declared = on.model_change(Group, operations=["delete"], each="statement")
    assert (declared.types, declared.settings["each"]) == (("db.auth.group.delete.statement",), "statement")


@pytest.mark.parametrize(
    ("terms", "fault"),
    [
        ({"operations": ["upsert"]}, "operations are insert, update, delete"),
        ({"operations": []}, "operations are"),
        ({"each": "table"}, "each is 'row' or 'statement'"),
        ({"when": "status = 1"}, "use a Q object"),
        ({"when": Q(name=object())}, "cannot stand in a condition"),
        ({"when": Q(name="a") ^ Q(name="b")}, "not \\^"),
    ],
)
def test_wrong_declarations_are_refused(terms: Any, fault: str) -> None:
    with pytest.raises(TypeError, match=fault):
        on.model_change(Group, **terms)
