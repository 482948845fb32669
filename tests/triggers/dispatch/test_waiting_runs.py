"""Which waits an event ends is found without parsing large data in the dispatcher."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from agents.journal.canonical import hash_in, match_of
from runs import waits
from tests.support.triggers import make_event
from triggers.dispatch.waiting_runs import waits_ended_by
from triggers.matching.pending import item_of, read_data, read_fields

pytestmark = pytest.mark.django_db

PATHS = ["id", "customer.id", "items.0", "items.id", 'a"b.ü 😀', "note", "text", "none.at.all", "nul\0"]
DATA: dict[str, Any] = {
    "id": 12345678901234567890.5,
    "customer": {"id": "c7"},
    "items": [{"id": 1}],
    'a"b': {"ü 😀": True},
    "note": None,
    "text": "x" * 100_000,
}


def test_fields_that_are_read_from_large_data_hash_as_in_the_whole() -> None:
    event, other = make_event(data=DATA).pk, make_event(data=[DATA]).pk

    whole, fields = read_data({event, other}), read_fields({event, other}, PATHS)

    for path in PATHS:
        shape, _ = match_of({path: "any"})
        for id in (event, other):
            assert hash_in(shape, "cli", fields.get(id)) == hash_in(shape, "cli", whole[id])
    assert hash_in(match_of({"customer.id": ""})[0], "cli", fields[event]) == match_of({"customer.id": "c7"})[1]


def test_large_data_is_not_read_to_look_up_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(type="order.paid", data={"id": "o-1", "text": "x" * 3_000_000}, body=b" " * 100_000)
    lookups: list[Any] = []
    monkeypatch.setattr(waits, "shapes_of", lambda types: {"order.paid": [match_of({"id": "o-1"})[0]]})

    def hits_of(looked_up: list[Any], most: int) -> tuple[dict[int, Any], bool]:
        lookups.extend(looked_up)
        return {}, True

    monkeypatch.setattr(waits, "hits_of", hits_of)
    item = replace(item_of(event), bytes=3_000_000)
    tracemalloc.start()

    waits_ended_by([item], 100)

    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert lookups == [(event.pk, "order.paid", *match_of({"id": "o-1"}))] and peak < 1_000_000
