"""Strict JSON: it refuses, with a reason, JSON that two parsers could read differently or PostgreSQL cannot store."""

import json
import re
from collections.abc import Iterator
from math import isfinite
from typing import Any

MAX_DEPTH = 100
MAX_VALUES = 1_000_000
INTEGERS = range(-(2**63), 2**64)
LONE_SURROGATE = re.compile("[\ud800-\udfff]")
# An unterminated text ends with the document: another search from each of its quotes would be quadratic.
TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)


class Unreadable(ValueError):
    """Bytes that are not storable JSON; the message gives the reason."""


def parse_json(body: bytes) -> Any:
    """The JSON value of these bytes, or Unreadable. Their number and MAX_VALUES bound time and memory."""
    _require_few(body)
    try:
        # RFC 8259 §8.1: UTF-8, where a parser may ignore a byte order mark.
        value = DECODER.decode(body.decode("utf-8-sig"))
    except Unreadable:
        raise
    except UnicodeDecodeError as error:
        raise Unreadable(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels") from None
    require_shallow(value)
    return value


def require_storable(value: Any) -> None:
    """Refuse text that jsonb cannot hold, in names and values: U+0000 and unpaired surrogates."""
    for node in _nodes(value):
        for text in node if isinstance(node, dict) else (node,):
            if isinstance(text, str) and not is_storable(text):
                raise Unreadable("contains \\u0000 or an unpaired surrogate, which PostgreSQL cannot store as JSON")


def is_storable(text: str) -> bool:
    return "\0" not in text and not LONE_SURROGATE.search(text)


def _require_few(body: bytes) -> None:
    """Refuse a document with too many values before parsing it: each needs about fifty times its two bytes of memory."""
    if _most_values(body) > MAX_VALUES and _most_values(TEXT.sub(b"", body)) > MAX_VALUES:
        raise Unreadable(f"more than {MAX_VALUES:,} values")


def _most_values(body: bytes) -> int:
    # Each value but the first follows a comma or begins a list or an object.
    return 1 + body.count(b",") + body.count(b"[") + body.count(b"{")


def require_shallow(value: Any) -> None:
    """Unreadable if this JSON value is nested too deep."""
    for _ in _nodes(value):
        pass


def _nodes(value: Any) -> Iterator[Any]:
    """Every value in a JSON value, itself first; Unreadable if it is nested too deep. The stack holds one iterator per level,
    so there is no recursion and no copy."""
    stack = [iter((value,))]
    while stack:
        for node in stack[-1]:
            yield node
            if isinstance(node, (dict, list)):
                if len(stack) >= MAX_DEPTH and node:
                    raise Unreadable(f"nested deeper than {MAX_DEPTH} levels")
                stack.append(iter(node.values() if isinstance(node, dict) else node))
                break
        else:
            stack.pop()


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        first: dict[str, int] = {}
        for number, (name, _) in enumerate(pairs, start=1):
            # Without the name, which may be personal data: this message is stored beside the event.
            if name in first:
                raise Unreadable(f"duplicate name in an object: members {first[name]} and {number}")
            first[name] = number
    return members


def _integer(text: str) -> int:
    # Check the length first: converting a million digits is quadratic.
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


DECODER = json.JSONDecoder(
    object_pairs_hook=_unique_names, parse_int=_integer, parse_float=_number, parse_constant=_no_constant
)
