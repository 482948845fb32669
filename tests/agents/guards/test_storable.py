import json
from typing import Any

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from agents import Permanent
from agents.guards.storable import storable

NESTED: list[Any] = []
NESTED.append(NESTED)


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "text", [1, {"a": None}], "a backslash: \\u0000", "🌊"])
def test_json_is_stored_as_it_is(value: Any) -> None:
    assert storable(value, "its result") is value


@pytest.mark.parametrize(
    "value",
    [object(), {1, 2}, b"bytes", float("nan"), float("inf"), NESTED, {"a": "\x00"}, {"\x00": 1}, "\\\x00", "\ud800"],
    ids=lambda value: "an object" if type(value) is object else repr(value),
)
def test_a_value_that_postgresql_cannot_store_is_a_permanent_error_that_names_it(value: Any) -> None:
    with pytest.raises(Permanent, match="its result"):
        storable(value, "its result")


@pytest.mark.django_db
@given(st.text(st.characters(codec="utf-8")) | st.text("\\u0\x00"))
def test_whatever_passes_postgresql_takes_and_what_it_refuses_does_not_pass(text: str) -> None:
    is_storable = "\x00" not in text

    try:
        storable(text, "its result")
    except Permanent:
        assert not is_storable
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::jsonb", [json.dumps(text)])
        assert json.loads(cursor.fetchone()[0]) == text
