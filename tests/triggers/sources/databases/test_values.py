"""Values of columns as JSON, and the errors of settings."""

from typing import Any

import pytest
from psycopg import postgres

from triggers.sources.databases.server import SlotFacts
from triggers.sources.databases.slot import ReplicationSlot
from triggers.sources.databases.slot_refusal import refusal
from triggers.sources.databases.values import value_of
from triggers.sources.settings import InvalidSettings


@pytest.mark.parametrize(
    ("type_name", "text", "value"),
    [
        ("bool", "t", True),
        ("int8", "-9007199254740993", -9007199254740993),
        ("numeric", "12.50", 12.5),
        ("numeric", "7", 7),
        ("numeric", "0.1000000000000000055", "0.1000000000000000055"),
        ("numeric", "NaN", "NaN"),
        ("float8", "Infinity", "Infinity"),
        ("jsonb", '{"a": [1]}', {"a": [1]}),
        ("json", '{"a": 1, "a": 2}', '{"a": 1, "a": 2}'),
        ("json", '"\\u0000"', '"\\u0000"'),
        ("timestamptz", "2026-11-23 05:18:00.5+00", "2026-11-23T05:18:00.5+00:00"),
        ("timestamp", "2026-11-23 05:18:00", "2026-11-23T05:18:00"),
        ("timestamptz", "infinity", "infinity"),
        ("date", "2026-11-23", "2026-11-23"),
        ("bytea", "\\x00ff", "\\x00ff"),
        ("uuid", "0b1e4c9c-0000-4000-8000-000000000000", "0b1e4c9c-0000-4000-8000-000000000000"),
    ],
)
def test_a_value_is_that_of_to_jsonb_unless_json_cannot_keep_it(type_name: str, text: str, value: Any) -> None:
    assert value_of(text.encode(), postgres.types[type_name].oid) == value


def test_arrays_are_lists_of_their_values() -> None:
    integers, texts = postgres.types["int4"].array_oid, postgres.types["text"].array_oid

    assert value_of(b"{{1,2},{3,NULL}}", integers) == [[1, 2], [3, None]]
    assert value_of(b'{"a,b",NULL,"NULL","\\"}"}', texts) == ["a,b", None, "NULL", '"}']
    assert value_of(b"broken", integers) == "broken"


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "url"),
        ({"url": "postgresql://u:secret@h/d"}, "url"),
        ({"url": "postgresql://h/d"}, "url"),
        ({"url": "postgresql://u@h/d?passfile=/etc/shadow"}, "url"),
        ({"url": "postgresql://u@h/d?sslkeylogfile=/srv/wakeful/env"}, "url"),
        ({"url": "host=/run/postgresql user=wakeful dbname=wakeful"}, "url"),
        ({"url": "postgresql://u@h/d", "slot": "a; DROP"}, "slot"),
        ({"url": "postgresql://u@h/d", "alias": "a.b"}, "alias"),
    ],
)
def test_settings_that_cannot_be_right_are_refused(settings: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        ReplicationSlot().clean_settings(settings)

    assert field in refused.value.errors


def test_a_server_without_logical_wal_and_a_slot_that_lost_its_wal_are_refused_with_a_remedy() -> None:
    fine = {
        "version": 180000, "wal_level": "logical", "keep": "4GB", "database": "shop", "role": "reader",
        "has_publication": True, "has_events": False, "has_slot": True, "plugin": "pgoutput", "slot_database": "shop", "is_active": False,
        "active_pid": None, "wal_status": "reserved", "invalidation": "", "confirmed": "0/1", "safe": None, "retained": 0,
        "behind": 0, "reader": None,
    }  # fmt: skip

    def refused(**changed: Any) -> str:
        found = refusal(SlotFacts(**{**fine, **changed}), "wakeful_shop", "wakeful_shop", "shop", None)
        return f"{found} {found.remedy}" if found else ""

    assert refused() == ""
    assert "restart it" in refused(wal_level="replica")
    assert "slot drop shop --keep-publication" in refused(wal_status="lost")
    assert "idle_timeout" in refused(invalidation="idle_timeout")
    assert "14 or later" in refused(version=130010)
    assert "each event would make another one" in refused(has_events=True)
