"""Which events of a batch several processes may dispatch at once."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from triggers.dispatch.parts import divide
from triggers.matching.backfill_terms import Terms
from triggers.matching.flow_control import Intake, Rate
from triggers.matching.index import Rule
from triggers.matching.match import Matched, Outgoing, bare_match
from triggers.matching.matches import Match, refuse
from triggers.matching.pending import Item
from triggers.models import Decision

RULE = Rule(id=uuid4(), slug="greeter", agent="greeter", overlap="queue")


def event(*keys: str, rule: Rule = RULE, **fields: Any) -> Matched:
    """An event with a match for each of the keys."""
    id, now = uuid4(), timezone.now()
    item = Item(
        event_id=id, source="cli", type="a", subject="", time=now, target_id=None, root_id=id, depth=0, **fields
    )
    match = bare_match(item, rule)
    return Matched(item=item, matches=[Match(**{**vars(match), "key": key}) for key in keys] or [match])


@given(
    keys=st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=2), max_size=40),
    most=st.integers(1, 64),
    stay=st.sets(st.integers(0, 39), max_size=3),
)
def test_each_event_is_in_one_place_in_order_and_a_key_has_all_its_events_in_one_place(
    keys: list[list[str]], most: int, stay: set[int]
) -> None:
    batch = [event(*own) for own in keys]
    awaited = {batch[place].item.event_id for place in stay if place < len(batch)}
    divided = divide(batch, awaited, most=most, least=1)
    places = [*divided.parts, divided.rest]

    assert len(divided.parts) <= most and all(divided.parts)
    assert sorted(batch.index(one) for place in places for one in place) == list(range(len(batch)))
    for place in places:
        assert [batch.index(one) for one in place] == sorted(batch.index(one) for one in place)
    of_keys = [set().union(*(one.keys for one in place)) for place in places]
    assert sum(map(len, of_keys)) == len(set().union(*of_keys))
    assert awaited <= {one.item.event_id for one in divided.rest}


def test_parts_are_about_as_large_as_each_other() -> None:
    batch = [event() for _ in range(100)] + [event("hot") for _ in range(20)]
    assert [len(part) for part in divide(batch, set(), most=4, least=16).parts] == [30, 30, 30, 30]


def test_a_small_batch_is_not_divided() -> None:
    batch = [event() for _ in range(31)]
    assert divide(batch, set(), most=4, least=16).rest == batch


def test_one_key_is_not_divided() -> None:
    batch = [event("hot") for _ in range(100)]
    assert divide(batch, set(), most=4, least=16).rest == batch


def with_field(name: str, value: Any) -> Matched:
    one = event()
    setattr(one, name, value)
    return one


def of_rule(**fields: Any) -> Matched:
    return event(rule=Rule(**{**vars(RULE), **fields}))


def looping() -> Matched:
    return event(chain=(RULE.slug,))


def refused() -> Matched:
    one = event()
    return with_field("refusals", [refuse(one.matches[0], Decision.Outcome.HELD, "paused")])


STAYING: dict[str, Callable[[], Matched]] = {
    "dispatched again": lambda: event(redispatch_id=1),
    "of a backfill": lambda: event(backfill=Terms(backfill_id=uuid4(), at_once=1, priority=5)),
    "not known in full": lambda: with_field("is_partial", True),
    "dispatched in part": lambda: with_field("later", event("a").matches),
    "before others": lambda: with_field("blocks", frozenset({RULE.id})),
    "behind others": lambda: with_field("behind", frozenset({RULE.id})),
    "watched by a switch": lambda: with_field("sightings", [object()]),
    "refused": refused,
    "closes a loop": looping,
    "limited by a rate": lambda: of_rule(intake=Intake(rate=Rate.parse("1/s"))),
    "collected": lambda: of_rule(intake=Intake(batch=2)),
    "replaces a run": lambda: of_rule(overlap="cancel_previous"),
}


@pytest.mark.parametrize("why", STAYING)
def test_an_event_for_which_more_than_its_keys_counts_stays_with_the_events_of_its_keys(why: str) -> None:
    staying = STAYING[why]()
    staying.matches += event("shared").matches
    shared = event("shared")
    batch = [staying, shared, *(event() for _ in range(40))]
    divided = divide(batch, set(), most=2, least=16)
    assert divided.rest == [staying, shared]
    assert len(divided.parts) == 2


def test_an_event_that_leaves_to_a_subscription_is_divided() -> None:
    batch = [event() for _ in range(32)]
    for one in batch:
        one.outgoing = [Outgoing(subscription_id=UUID(int=1))]
    assert not divide(batch, set(), most=2, least=16).rest
