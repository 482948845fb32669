"""The trial of a rule explains each miss, and the fields of recent events are offered as expressions that work."""

from typing import Any
from uuid import uuid4

import pytest

from agents.kernel import redaction
from tests.support.triggers import make_event
from triggers.matching import field_samples as seen_module
from triggers.matching import recent as recent_module
from triggers.matching.expressions.cel import compile_expression, context_of, value
from triggers.matching.field_samples import seen_fields
from triggers.matching.index import Rule
from triggers.matching.recent import recent_events
from triggers.matching.trial import Trial, try_rule
from triggers.models import Event

pytestmark = pytest.mark.django_db
ORDER = {
    "kind": "order",
    "amount": 120,
    "customer": {"id": "c7", "e-mail": "ada@example.com"},
    "items": [{"sku": "A1", "n": 2}, {"sku": "B2"}],
    "api_key": "sk-123456",
}


def rule(**fields: Any) -> Rule:
    return Rule(**{"id": uuid4(), "slug": "trial", "agent": "", "types": ("order.*",), **fields})


def lines_of(trial: Trial) -> list[tuple[str, str]]:
    return [(line.text, line.state) for line in trial.verdicts[0].lines]


def test_a_miss_names_the_clauses_that_were_false_and_the_values_they_saw() -> None:
    make_event(type="order.paid", data=ORDER)
    text = 'event.type == "order.paid" && event.data.amount > 200 && (event.data.kind == "x" || event.data.customer.id == "c8")'

    trial = try_rule(rule(filter=text))

    [verdict] = trial.verdicts
    assert (verdict.result, verdict.why) == ("no", "event.data.amount > 200 is false")
    assert lines_of(trial) == [
        ('event.type == "order.paid"', "true"),
        ("event.data.amount > 200", "false"),
        ("one of these", "false"),
        ('event.data.kind == "x"', "false"),
        ('event.data.customer.id == "c8"', "false"),
    ]
    assert verdict.lines[1].reads == [("event.data.amount", "120")]
    assert [line.level for line in verdict.lines] == [0, 0, 0, 1, 1]


def test_an_error_is_explained_with_key_and_input_and_secrets_are_not_shown() -> None:
    make_event(type="order.paid", data=ORDER)

    trial = try_rule(
        rule(filter='event.data.api_key == "x" || true', key="event.data.nothing", input={"a": "event.data.amount"})
    )

    [verdict] = trial.verdicts
    assert verdict.result == "error"
    assert verdict.lines[1].reads == [("event.data.api_key", redaction.MARK)]
    assert [(line.text, line.state) for line in verdict.lines[3:]] == [
        ("event.data.nothing", "error"), ("event.data.amount", "value")
    ]  # fmt: skip
    assert verdict.lines[3].why == "there is no field 'nothing'" and verdict.lines[4].why == "120"


def test_a_match_shows_key_and_input_and_other_types_of_the_source_are_counted() -> None:
    make_event(type="order.paid", data=ORDER)
    make_event(type="cart.updated")

    trial = try_rule(
        rule(key="event.data.customer.id", input={"n": "event.data.items.size()", "token": "event.data.kind"})
    )

    [verdict] = trial.verdicts
    assert (verdict.result, verdict.key) == ("yes", "c7")
    assert verdict.input == {"n": "2", "token": redaction.MARK}
    assert sorted(trial.types) == [("cart.updated", 1, False), ("order.paid", 1, True)]


def test_a_trial_is_bounded_in_time_and_size(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(12):
        make_event(type="order.paid", data=ORDER)
    monkeypatch.setattr("triggers.matching.trial.MOST_BYTES", 10)
    assert [one.result for one in try_rule(rule(filter="event.data.amount > 1")).verdicts] == ["yes"] * 10 + [
        "not tried"
    ] * 2
    monkeypatch.setattr("triggers.matching.trial.SECONDS", 0)
    assert {one.why for one in try_rule(rule()).verdicts} == {"time limit of 0 s for all events reached"}


def test_events_of_a_rare_type_are_found_behind_many_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_module, "LOOKED_AT", 2)
    rare = make_event(type="order.paid")
    for number in range(3):
        make_event(type=f"cart.{number}")
    assert recent_events(rule(), 5).ids == []  # it is not dispatched yet
    Event.objects.update(dispatched_at=rare.received_at)

    found = recent_events(rule(), 5)

    assert (found.ids, found.types["order.paid"]) == ([rare.pk], 1)
    assert recent_events(rule(source="elsewhere"), 5).ids == []


def test_offered_fields_are_expressions_that_are_true_for_the_event_they_come_from() -> None:
    make_event(type="order.paid", data=ORDER, subject="s")
    make_event(type="order.paid", data={"kind": "order", "customer": None})

    seen = seen_fields(rule())

    fields = {one.name: one for one in seen.fields}
    assert seen.events == 2
    assert fields["event.data.kind"].in_filter == 'event.data.kind == "order"'
    assert (fields["event.data.kind"].count, fields["event.data.amount"].count) == (2, 1)
    assert fields["event.data.amount"].in_filter == "has(event.data.amount) && event.data.amount == 120"
    assert fields['event.data.customer["e-mail"]'].in_input == 'event.data.customer["e-mail"]'
    assert fields["event.data.items[].sku"].in_input == "event.data.items.map(item, item.sku)"
    assert fields["event.data.items[].n"].in_filter.endswith("items.exists(item, has(item.n) && item.n == 2)")
    assert (fields["event.data.api_key"].example, fields["event.data.api_key"].literal) == (redaction.MARK, "")
    context = context_of({"type": "order.paid", "source": "cli", "subject": "s", "data": ORDER})
    for one in seen.fields:
        if one.literal:
            assert value(compile_expression(one.in_filter), context) is True, one
        value(compile_expression(one.in_key), context)
        value(compile_expression(one.in_input), context)


def test_offered_fields_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "OFFERED", 5)
    monkeypatch.setattr(seen_module, "LARGEST", 3_000)
    deep: Any = 1
    for _ in range(30):
        deep = {"a": deep}
    make_event(type="order.paid", data={"deep": deep, **{f"id-{number}": number for number in range(50)}})
    make_event(type="order.paid", data={"text": "a" * 5_000})

    seen = seen_fields(rule())

    assert (len(seen.fields), seen.has_more, seen.events, seen.left_out) == (5, True, 1, 1)
    assert max(len(one.path) for one in seen.fields) <= seen_module.DEPTH + 2
