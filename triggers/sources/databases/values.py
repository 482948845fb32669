"""The values of columns as JSON, as PostgreSQL's to_jsonb writes them, from their text in ISO style and UTC."""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import postgres, pq
from psycopg.adapt import Transformer

from runs.api.strict_json import Unreadable, parse_json, require_storable

# Settings of the session that writes them.
STYLE = {
    "datestyle": "ISO",
    "timezone": "UTC",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
}
TEXTS = postgres.types["text"].array_oid
LONGEST_INTEGER = 19  # characters


def value_of(text: bytes, type_oid: int) -> Any:
    if convert := CONVERTERS.get(type_oid):
        return convert(text.decode(errors="replace"))
    if (element := ELEMENTS.get(type_oid)) is not None:
        return _array(text, element)
    return text.decode(errors="replace")


def _number(text: str) -> Any:
    """Text, if it is none or has more digits than a number of JSON keeps everywhere."""
    if len(text) <= LONGEST_INTEGER and text.removeprefix("-").isdigit():
        return int(text)
    number = float(text)
    is_exact = math.isfinite(number) and Decimal(repr(number)) == Decimal(text)
    return number if is_exact else text


def _json(text: str) -> Any:
    try:
        value = parse_json(text.encode())
        require_storable(value)
    except Unreadable:
        return text
    return value


def _timestamp(text: str) -> str:
    """2026-11-23 05:18:00.5+00 → 2026-11-23T05:18:00.5+00:00; infinity and years before Christ stay as they are."""
    date, space, time = text.partition(" ")
    if not space or time.endswith("BC"):
        return text
    zoned = f"{time}:00" if len(time) > 3 and time[-3] in "+-" else time
    return f"{date}T{zoned}"


def _array(text: bytes, element: int) -> Any:
    # The text of every array has the same form.
    try:
        read = Transformer().get_loader(TEXTS, pq.Format.TEXT).load(text)
    except psycopg.Error:
        return text.decode(errors="replace")
    return _each(read, element)


def _each(read: Any, element: int) -> Any:
    if isinstance(read, list):
        return [_each(one, element) for one in read]
    return None if read is None else value_of(read.encode(), element)


def _of(names: str, convert: Callable[[str], Any]) -> dict[int, Callable[[str], Any]]:
    return {postgres.types[name].oid: convert for name in names.split()}


CONVERTERS: Mapping[int, Callable[[str], Any]] = {
    **_of("bool", lambda text: text == "t"),
    **_of("int2 int4 int8 oid", int),
    **_of("float4 float8 numeric", _number),
    **_of("json jsonb", _json),
    **_of("timestamp timestamptz", _timestamp),
}
ELEMENTS = {info.array_oid: info.oid for info in postgres.types if info.array_oid and info.delimiter == ","}
