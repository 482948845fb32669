import json
from datetime import UTC, datetime
from typing import Any

import pytest

from triggers.sources.brokers.debezium import SKIP, Skip, change_of
from triggers.sources.runner import Poison, Received

CHANGE = {
    "before": None,
    "after": {"id": 7, "total": "42.50"},
    "source": {
        "connector": "postgresql",
        "db": "shop",
        "schema": "public",
        "table": "orders",
        "ts_ms": 1_700_000_000_000,
    },
    "op": "c",
    "ts_ms": 1_700_000_000_500,
}


def change(body: Any, *, key: Any = None, snapshots: bool = False) -> Received | Poison | Skip:
    return change_of(
        id="shop.public.orders/0/5",
        key=b"" if key is None else json.dumps(key).encode(),
        body=b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode(),
        headers={},
        origin="kafka:shop.public.orders",
        snapshots=snapshots,
    )


@pytest.mark.parametrize("has_schema", [True, False])
def test_a_change_is_an_event_of_its_table(has_schema: bool) -> None:
    body: Any = {"schema": {"type": "struct"}, "payload": CHANGE} if has_schema else CHANGE

    event = change(body, key={"schema": {}, "payload": {"id": 7}} if has_schema else {"id": 7})

    assert isinstance(event, Received)
    assert (event.type, event.subject) == ("db.public.orders.insert", "public.orders/7")
    row, source = CHANGE["after"], CHANGE["source"]
    assert event.payload.data == {"pk": 7, "old": None, "new": row, "changed": [], "source": source}
    assert event.time == datetime.fromtimestamp(1_700_000_000, UTC)


@pytest.mark.parametrize(
    ("op", "type"),
    [("u", "orders.update"), ("d", "orders.delete"), ("t", "orders.truncate"), ("m", "orders.message")],
)
def test_each_operation_is_a_type(op: str, type: str) -> None:
    event = change({**CHANGE, "op": op})

    assert isinstance(event, Received) and event.type == f"db.public.{type}"


def test_an_update_shows_what_changed_and_which_large_values_it_does_not_have() -> None:
    hidden = "__debezium_unavailable_value"
    after = {"id": 7, "total": "43.00", "note": hidden}
    alone = change({**CHANGE, "op": "u", "after": after})
    whole = change({**CHANGE, "op": "u", "before": {"id": 7, "total": "42.50", "note": "long"}, "after": after})

    assert isinstance(alone, Received) and isinstance(whole, Received)
    data = alone.payload.data
    assert (data["new"], data["changed"], data["unchanged"]) == ({"id": 7, "total": "43.00"}, None, ["note"])
    assert (whole.payload.data["new"]["note"], whole.payload.data["changed"]) == ("long", ["total"])


def test_rows_of_a_snapshot_are_events_only_if_wished() -> None:
    assert change({**CHANGE, "op": "r"}) is SKIP
    event = change({**CHANGE, "op": "r"}, snapshots=True)
    assert isinstance(event, Received) and event.type == "db.public.orders.snapshot"


def test_a_tombstone_is_no_event() -> None:
    assert change(None, key={"id": 7}) is SKIP


@pytest.mark.parametrize(
    "body", [b"{", {"op": "x"}, {"op": []}, {"op": {}}, {"hello": 1}, [], 7, {"schema": {}, "payload": None}]
)
def test_a_message_that_is_no_change_is_poison(body: Any) -> None:
    assert isinstance(change(body), Poison)


@pytest.mark.parametrize(
    ("key", "subject"),
    [({"id": "a-1"}, "a-1"), ({"a": 1, "b": "x"}, "1,x"), ({"id": True}, "true"), (None, ""), ("text", "text")],
)
def test_the_primary_key_is_the_subject(key: Any, subject: str) -> None:
    event = change(CHANGE, key=key)

    assert isinstance(event, Received) and event.subject == f"public.orders/{subject}"
