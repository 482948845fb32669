"""Which triggers an event is offered to: never fewer than a look at each of them finds, and few of those it cannot match."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any
from unittest.mock import patch
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.actions.event_runs import runs_of_event
from tests.support.triggers import make_event, make_trigger
from tests.triggers.matching.expressions.test_cel import FILTERS, VALUES
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.matching import index as index_module
from triggers.matching.expressions import cel
from triggers.matching.index import Index, Listeners, Rule
from triggers.matching.match import cases_of, decide, wanted_by
from triggers.matching.matches import Refusal
from triggers.matching.payload import Payload
from triggers.matching.pending import Item
from triggers.models import Decision, Trigger

MANY = 2_000
TYPES = st.sampled_from(["a.b", "a.c", "a", "b", "a.b.c"])
PATTERNS = st.sampled_from(["a.b", "a.*", "*", "a*", "*.b", "?", "[ab]", "b", "a.b.*"])
SOURCES = st.sampled_from(["", "s", "t"])


@st.composite
def rules_of(draw: Callable[..., Any]) -> list[Rule]:
    return [
        Rule(
            id=uuid4(), slug=f"r{number}", agent="a", source=draw(SOURCES), filter=draw(FILTERS | st.just("")),
            types=tuple(draw(st.lists(PATTERNS, max_size=3))), enabled=draw(st.booleans()),
        )
        for number in range(draw(st.integers(1, 6)))
    ]  # fmt: skip


def item_of_type(type: str, source: str) -> Item:
    return Item(
        event_id=uuid4(), source=source, type=type, subject="", time=datetime(2026, 1, 1, tzinfo=UTC), target_id=None,
        root_id=uuid4(), depth=0,
    )  # fmt: skip


def decided(item: Item, rules: list[Rule], payload: Payload) -> dict[str, str]:
    found = decide(item, cases_of(item, rules), payload)
    return {
        rule.slug: one.reason if isinstance(one, Refusal) else "match"
        for rule, one in zip(rules, found, strict=True)
        if one is not None
    }


@given(rules_of(), TYPES, st.sampled_from(["s", "t"]), VALUES)
def test_the_index_finds_the_same_as_checking_every_trigger(
    rules: list[Rule], type: str, source: str, data: object
) -> None:
    item, payload = item_of_type(type, source), Payload(text=json.dumps(data))
    listening = [
        rule
        for rule in rules
        if rule.enabled and rule.source in ("", source) and any(fnmatchcase(type, glob) for glob in rule.types)
    ]

    found = wanted_by(item, Index(rules), payload)

    assert [rule.slug for rule in found] == sorted(rule.slug for rule in found)
    assert decided(item, found, payload) == decided(item, listening, payload)


@given(
    st.lists(st.tuples(rules_of(), st.sets(st.integers(0, 30), max_size=6)), min_size=1, max_size=6),
    TYPES,
    st.sampled_from(["s", "t"]),
    VALUES,
    st.sampled_from([0, 3, 1_000]),
)
def test_after_any_edits_the_index_is_the_same_as_one_built_from_scratch(
    edits: list[tuple[list[Rule], set[int]]], type: str, source: str, data: object, few: int
) -> None:
    """An edit takes some rules away, adds others, and replaces some. `few`: after so many, rules are placed again."""
    item, payload = item_of_type(type, source), Payload(text=json.dumps(data))
    edited, rules = Index(), dict[UUID, Rule]()
    with patch.object(index_module, "FEW", few):
        for number, (given, places) in enumerate(edits):
            ids = list(rules)
            gone = {ids[place] for place in places if place < len(ids)}
            replaced = sorted(gone, key=str)[::2]
            added = [replace(rule, slug=f"{number}-{rule.slug}") for rule in given]
            added = [replace(rule, id=id) for rule, id in zip(added, replaced, strict=False)] + added[len(replaced) :]
            before, was = found_in(edited, item, payload), edited
            edited = edited.edited(gone, added)
            assert found_in(was, item, payload) == before  # a batch that is being matched keeps its index
            rules = {id: rule for id, rule in rules.items() if id not in gone} | {rule.id: rule for rule in added}

            built = Index(rules.values())
            assert edited.by_id == built.by_id == rules
            assert edited.heard.keys() == built.heard.keys()
            for key, heard in edited.heard.items():
                assert (heard.by_id, heard.shared) == (built.heard[key].by_id, built.heard[key].shared)
                assert heard.reads_data == built.heard[key].reads_data
                assert_each_is_placed_once(heard)
            assert edited.candidates(source, type) == built.candidates(source, type)
            assert found_in(edited, item, payload) == found_in(built, item, payload)


def found_in(index: Index, item: Item, payload: Payload) -> dict[str, str]:
    return decided(item, wanted_by(item, index, payload), payload)


def assert_each_is_placed_once(heard: Listeners) -> None:
    by_path = [id for rules in heard.with_field.values() for id in rules]
    by_path += [id for group in heard.groups.values() for id in group.placed]
    assert sorted([*heard.always, *by_path], key=str) == sorted(heard.by_id, key=str)
    assert {path: {id for group in by_value.values() for id in group} for path, by_value in heard.by_field.items()} == {
        path: set(rules) for path, rules in heard.with_field.items()
    }
    assert all(group for by_value in heard.by_field.values() for group in by_value.values())


def test_a_rule_among_many_is_edited_without_placing_the_others_again() -> None:
    rules = [
        Rule(
            id=uuid4(),
            slug=f"r{n}",
            agent="a",
            types=("a.b",),
            filter=f"event.data.kind == 'x' && event.data.id == {n}",
        )
        for n in range(1_000)
    ]
    index = Index(rules)
    with patch.object(Listeners, "_place", autospec=True, side_effect=Listeners._place) as placed:
        index = index.edited({rules[7].id}, [replace(rules[7], filter="event.data.id == 7007")])

    assert placed.call_count == 1
    for value, slugs in ((7007, ["r7"]), (7, []), (8, ["r8"])):
        fields = {("data", "id"): value, ("data", "kind"): "x"}
        assert [rule.slug for rule in index.candidates("", "a.b", lambda path, all=fields: all[path])] == slugs  # type: ignore[misc]


def test_a_first_reading_asks_each_rule_once_where_it_belongs() -> None:
    """An index that is empty is edited by all rules at once."""
    rules = [Rule(id=uuid4(), slug=f"r{n}", agent="a", types=(f"type.{n}",)) for n in range(500)]
    with patch.object(index_module, "keys_of", side_effect=index_module.keys_of) as asked:
        index = Index().edited({rule.id for rule in rules}, rules)

    assert asked.call_count == len(rules)
    assert index.by_id == Index(rules).by_id


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    seen: list[str] = []
    real = cel.value

    def value(expression: cel.Expression, event: Any) -> Any:
        seen.append(expression.text)
        return real(expression, event)

    monkeypatch.setattr(cel, "value", value)
    return seen


def rule(number: int, **fields: Any) -> Rule:
    return Rule(id=uuid4(), slug=f"r{number}", agent="a", **{"types": ("order.paid",), **fields})


@pytest.mark.parametrize(
    "filter",
    [
        'event.data.customer == "c{}"',
        'event.data.amount > 0 && event.data.kind == "order" && event.data.customer in ["c{0}", "d{0}"]',
        'has(event.data.customer) && "c{}" == event.data.customer && !event.data.items.exists(x, x < 0)',
        "event.data.number == {}",
        'event.data.kind.startsWith("or") && event.data.name.startsWith("n{}.")',
        "event.data.amount > 0 && event.data.number >= {0} && {0}.5 > event.data.number",
    ],
)
def test_indexed_filters_cost_as_much_as_the_matching_ones(filter: str, evaluations: list[str]) -> None:
    rules = [rule(number, filter=filter.format(number)) for number in range(MANY)]
    index = Index(rules)
    data = {"customer": "c7", "name": "n7.x", "number": 7, "kind": "order", "amount": 3, "items": [1]}
    item, payload = item_of_type("order.paid", "s"), Payload(text=json.dumps(data))

    wanted = wanted_by(item, index, payload)

    assert [each.slug for each in wanted] == ["r7"]
    assert list(decided(item, wanted, payload).values()) == ["match"]
    assert len(evaluations) <= 1


def test_a_filter_that_many_triggers_share_is_evaluated_once(evaluations: list[str]) -> None:
    rules = [
        rule(n, filter="size(event.data.items) > 0", key="event.data.customer", overlap="queue") for n in range(100)
    ]
    rules += [rule(100 + n, filter="size(event.data.items) > 1", key="event.data.customer") for n in range(100)]
    item, payload = item_of_type("order.paid", "s"), Payload(text='{"items": [1], "customer": "c7"}')

    assert decided(item, rules, payload) == {f"r{n}": "match" for n in range(100)}
    assert evaluations.count("size(event.data.items) > 0") == evaluations.count("size(event.data.items) > 1") == 1


def test_triggers_of_other_types_and_sources_are_not_looked_at() -> None:
    rules = [rule(number, types=(f"customer{number}.*",)) for number in range(MANY)]
    rules += [rule(MANY + number, types=("*",), source=f"s{number}") for number in range(MANY)]
    index = Index(rules)

    found = index.listeners("s5", "customer7.came")

    assert sorted(each.slug for listeners in found for each in listeners.by_id.values()) == [f"r{MANY + 5}", "r7"]
    assert index.globs == []


@pytest.mark.django_db
def test_an_event_without_the_field_is_an_error_of_each_trigger_that_compares_it() -> None:
    for number in range(3):
        make_trigger(f"t{number}", filter=f'event.data.customer == "c{number}"')
    event, found = make_event(data={}), make_event(data={"customer": "c1"})

    dispatch(Rules())

    assert set(Decision.objects.filter(event=event).values_list("outcome", flat=True)) == {"error"}
    assert Decision.objects.filter(event=event).count() == 3
    assert [run.trigger for run in runs_of_event(found.id)] == ["t1"]


@pytest.mark.django_db
def test_data_is_read_and_handed_over_only_where_an_expression_reads_it(
    evaluations: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []

    def read_payloads(ids: list[Any]) -> dict[Any, Any]:
        read.extend(ids)
        return {}

    monkeypatch.setattr("triggers.matching.match.read_payloads", read_payloads)
    make_trigger("plain")
    make_trigger("envelope", filter='event.subject == "s"')
    event = make_event(data={"a": 1}, subject="s")

    dispatch(Rules())

    assert (read, len(runs_of_event(event.id))) == ([], 2)


@pytest.mark.django_db
def test_data_over_the_limit_is_an_error_only_where_an_expression_needs_it(settings: Any) -> None:
    settings.WAKEFUL_MAX_MATCH = 100
    make_trigger("plain")
    make_trigger("envelope", filter='event.subject == "s"', key="event.subject", overlap="queue")
    make_trigger("misses", filter='event.subject == "other" && event.data.a == 1')
    make_trigger("reads", filter='event.data.a == "x"')
    event = make_event(data={"a": "x" * 100}, subject="s")

    dispatch(Rules())

    assert {run.trigger for run in runs_of_event(event.id)} == {"plain", "envelope"}
    [decision] = Decision.objects.filter(event=event)
    assert (decision.trigger.slug, decision.outcome) == ("reads", "error")
    assert "at most 100 (WAKEFUL_MAX_MATCH)" in decision.reason


@pytest.mark.django_db
def test_a_stored_filter_over_a_limit_is_an_error_that_names_the_limit() -> None:
    make_trigger("old")
    Trigger.objects.update(filter="event" + ".a" * 900 + " == 1")
    make_trigger("new")
    event = make_event()

    dispatch(Rules())

    assert [run.trigger for run in runs_of_event(event.id)] == ["new"]
    decision = Decision.objects.get(event=event)
    assert decision.outcome == "error" and "nested deeper than 32 levels" in decision.reason


@pytest.mark.django_db
def test_a_payload_that_takes_hours_to_filter_holds_neither_its_batch_nor_its_other_triggers(settings: Any) -> None:
    settings.WAKEFUL_MATCH_TIME = settings.WAKEFUL_MATCH_TIME / 4
    make_trigger("slow", types=["cart.updated"], filter="event.data.items.filter(x, x > 0).size() > 3")
    make_trigger("other", types=["*"])
    poison = [make_event(type="cart.updated", data={"items": [1] * 50_000}) for _ in range(2)]
    unrelated = make_event(type="order.placed")

    batches = [dispatch(Rules()) for _ in range(2)]  # on a busy machine the second has what the first had no time for

    assert sum(batch.dispatched for batch in batches) == 3
    assert [run.trigger for event in (*poison, unrelated) for run in runs_of_event(event.id)] == ["other"] * 3
    decisions = Decision.objects.filter(trigger__slug="slow")
    assert [decision.outcome for decision in decisions] == ["error", "error"]
    assert all("WAKEFUL_MATCH_TIME" in decision.reason for decision in decisions)
