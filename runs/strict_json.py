"""Strict JSON: what two parsers could read differently, or PostgreSQL could not store, is refused with a reason."""

import json
import re
from collections.abc import Iterable
from math import isfinite
from typing import Any

MAX_DEPTH = 100
INTEGERS = range(-(2**63), 2**64)
LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Unreadable(ValueError):
    """Bytes that are not JSON we can store; the message says why, for a person."""


def parse_json(body: bytes) -> Any:
    """The JSON value of these bytes, or Unreadable."""
    try:
        # RFC 8259 §8.1: UTF-8, and a byte order mark may be ignored.
        value = json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_unique_names,
            parse_int=_integer,
            parse_float=_number,
            parse_constant=_no_constant,
        )
    except Unreadable:
        raise
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels") from None
    _require_shallow(value)
    return value


def require_storable(value: Any) -> None:
    """Refuse text that jsonb cannot hold: U+0000 and unpaired surrogates, in names as in values."""
    for level in _levels(value):
        for node in level:
            for text in node if isinstance(node, dict) else (node,):
                if isinstance(text, str) and not is_storable(text):
                    raise Unreadable("contains \\u0000 or an unpaired surrogate, which PostgreSQL cannot store as JSON")


def is_storable(text: str) -> bool:
    return "\0" not in text and not LONE_SURROGATE.search(text)


def _require_shallow(value: Any) -> None:
    for depth, _ in enumerate(_levels(value)):
        if depth >= MAX_DEPTH:
            raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")


def _levels(value: Any) -> Iterable[list[Any]]:
    """The nodes of a JSON value level by level: no recursion, so no document can exhaust the stack."""
    level = [value]
    while level:
        yield level
        level = [child for node in level for child in _children(node)]


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, list) else ()


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise Unreadable(f"the name {repeated!a} stands twice in one object")
    return members


def _integer(text: str) -> int:
    # The length first: converting a million digits is quadratic.
    if len(text) > 20 or int(text) not in INTEGERS:
        raise Unreadable("an integer beyond 64 bits")
    return int(text)


def _number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise Unreadable("a number beyond the range of a double")
    return number


def _no_constant(name: str) -> None:
    raise Unreadable(f"{name} is not JSON")
