"""Gaps between what is recorded and where a batch stands."""

from typing import Any

import pytest

from triggers.sources.continuity import Gap, Mark, Reason, Span, compare, dump, load
from triggers.sources.kind import Kind, kinds
from triggers.sources.runner import Broker, Runner


def span(first: int, next: int, stream: str = "orders", **fields: Any) -> Span:
    return Span(stream=stream, first=first, next=next, **fields)


def test_a_stream_that_begins_has_no_gap_and_is_marked() -> None:
    gaps, after = compare({}, [span(7, 9, incarnation="a", note={"epoch": 1})])

    assert not gaps
    assert load(dump(after)) == {"orders": Mark(next=9, incarnation="a", note={"epoch": 1})}


def test_a_span_behind_the_mark_is_a_gap_of_what_lies_between() -> None:
    gaps, after = compare({"orders": Mark(next=4)}, [span(4, 6), span(9, 9)])

    assert gaps == [Gap(stream="orders", reason=Reason.TRIMMED, start="6", end="8", count=3)]
    assert after["orders"].next == 9


def test_gaps_of_a_stream_in_one_batch_are_one() -> None:
    gaps, _ = compare({"orders": Mark(next=1)}, [span(2, 3), span(5, 6), span(1, 2, stream="bills")])

    assert gaps == [Gap(stream="orders", reason=Reason.TRIMMED, start="1", end="4", count=3)]


def test_another_incarnation_is_a_stream_that_was_made_again_and_a_lower_place_one_that_was_set_back() -> None:
    marks = {"orders": Mark(next=4, incarnation="a"), "bills": Mark(next=4)}

    gaps, _ = compare(marks, [span(0, 4, incarnation="b"), span(2, 3, stream="bills")])

    assert [(gap.stream, gap.reason, gap.count) for gap in gaps] == [
        ("orders", Reason.RECREATED, None),
        ("bills", Reason.RESTORED, None),
    ]


def test_an_incarnation_that_one_side_does_not_know_is_compared_by_place() -> None:
    gaps, after = compare({"orders": Mark(next=4)}, [span(4, 5, incarnation="a")])

    assert not gaps
    assert after["orders"].incarnation == "a"


def test_a_gap_that_the_kind_knows_of_is_one_although_the_numbers_meet() -> None:
    [gap], _ = compare({"orders": Mark(next=4)}, [span(4, 5, reason=Reason.RESTORED)])

    assert (gap.reason, gap.start, gap.end, gap.count) == (Reason.RESTORED, "4", "", None)


def test_places_that_are_no_messages_are_not_counted() -> None:
    [gap], _ = compare({"orders": Mark(next=4)}, [span(9, 9, is_counted=False)])

    assert (gap.start, gap.end, gap.count) == ("4", "8", None)


@pytest.mark.parametrize("name", sorted(kinds()))
def test_each_kind_declares_whether_it_sees_gaps(name: str) -> None:
    kind = kinds()[name]
    declaring = next(one for one in type(kind).__mro__ if "gaps" in vars(one))

    assert declaring not in (Runner, Broker, Kind)
    assert kind.gaps.text.startswith("Gaps are seen: " if kind.gaps.are_seen else "Gaps cannot be seen: ")
    assert kind.gaps.how.endswith(".")
