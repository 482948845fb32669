"""Necessary conditions of a filter, found in its tokens: where a field of an event is of the right type and does not meet one, the
filter is false, whatever its other parts are. An index need not offer the event to such a trigger. Pure and without Django, because
the evaluator process imports it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from triggers.matching.expressions.tokens import CLOSING, ENVELOPE, OPENING

Path = tuple[str, ...]
Tokens = Sequence[tuple[str, str]]
Number = int | float

PLAIN_STRING = re.compile(r"""("|')((?:(?!\1)[^\\\n])*)\1""")
PLAIN_INTEGER = re.compile(r"0|[1-9]\d{0,14}")  # exact as a double, too
PLAIN_NUMBER = re.compile(r"(0|[1-9]\d{0,14})(\.\d{1,15})?")
TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, kw_only=True)
class Equality:
    """The field at `path` below `event` equals one of `literals`. A value of another type does not."""

    path: Path
    literals: tuple[str | int | bool, ...]


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """The text in the field begins with this one. A value that is no text is an error."""

    path: Path
    text: str


@dataclass(frozen=True, kw_only=True)
class Range:
    """The number in the field is above `low` or, `with_low`, equal to it, and the same with `high`. A value that is no number is an
    error."""

    path: Path
    low: Number | None = None
    high: Number | None = None
    with_low: bool = False
    with_high: bool = False


Condition = Equality | Prefix | Range


def conditions_of(tokens: Tokens) -> list[Condition]:
    """The conditions among the operands of a top-level `&&`.

    CEL's `&&` is false if one operand is false, even if another raises an error. `==` between values of different types is
    false. So the filter is false for an event whose field exists and differs; if the field is missing, it may raise.
    """
    operands: list[list[tuple[str, str]]] = [[]]
    depth = 0
    for token in tokens:
        kind, text = token
        depth += (text in OPENING) - (text in CLOSING) if kind == "operator" else 0
        if depth == 0 and text in ("||", "?", ":") and kind == "operator":
            return []
        if depth == 0 and token == ("operator", "&&"):
            operands.append([])
        else:
            operands[-1].append(token)
    found = [condition for operand in operands if (condition := _condition(operand))]
    return _joined(found)


def _condition(tokens: Tokens) -> Condition | None:
    return _equality(tokens) or _prefix(tokens) or _range(tokens)


def _equality(tokens: Tokens) -> Equality | None:
    """`event.data.x == "a"`, `"a" == event.data.x`, or `event.data.x in ["a", "b"]`."""
    texts = [text for _, text in tokens]
    if "in" in texts:
        at = texts.index("in")
        if texts[at + 1 : at + 2] != ["["] or texts[-1] != "]":
            return None
        inner = tokens[at + 2 : -1]
        if len(inner) % 2 == 0 or any(token != ("operator", ",") for token in inner[1::2]):
            return None
        literals = [_literal(token) for token in inner[::2]]
        if not all(isinstance(literal, str) for literal in literals):
            return None
        path = _path(tokens[:at])
    elif "==" in texts:
        at = texts.index("==")
        left, right = tokens[:at], tokens[at + 1 :]
        if len(left) == 1:
            left, right = right, left
        if len(right) != 1:
            return None
        path, literals = _path(left), [_literal(right[0])]
    else:
        return None
    known = tuple(literal for literal in literals if literal is not None)
    return Equality(path=path, literals=known) if path and len(known) == len(literals) else None


def _prefix(tokens: Tokens) -> Prefix | None:
    """`event.data.x.startsWith("a")`."""
    *left, dot, method, opening, argument, closing = tokens if len(tokens) > 5 else [("", "")] * 5
    if (dot, method, opening, closing) != (
        ("operator", "."),
        ("name", "startsWith"),
        ("operator", "("),
        ("operator", ")"),
    ):
        return None
    path, text = _path(left), _literal(argument)
    return Prefix(path=path, text=text) if path and isinstance(text, str) and text else None


def _range(tokens: Tokens) -> Range | None:
    """`event.data.x > 1`, or `1 < event.data.x`."""
    signs = [at for at, (kind, text) in enumerate(tokens) if kind == "operator" and text in TURNED]
    if len(signs) != 1:
        return None
    [at] = signs
    left, sign, right = tokens[:at], tokens[at][1], tokens[at + 1 :]
    if (number := _number(right)) is None:
        left, sign, number = right, TURNED[sign], _number(left)
    path = _path(left)
    if number is None or path[:1] != ("data",):
        return None
    if sign in (">", ">="):
        return Range(path=path, low=number, with_low=sign == ">=")
    return Range(path=path, high=number, with_high=sign == "<=")


def _joined(conditions: Sequence[Condition]) -> list[Condition]:
    """Where a number of one field must be above one number and below another, as one range."""
    found: list[Condition] = []
    for condition in conditions:
        last = found[-1] if found else None
        if isinstance(condition, Range) and isinstance(last, Range) and (both := _both(last, condition)):
            found[-1] = both
        else:
            found.append(condition)
    return found


def _both(one: Range, other: Range) -> Range | None:
    """Two ranges of a field, one with a lower end and one with an upper, as one."""
    if one.low is None:
        one, other = other, one
    if one.path != other.path or one.low is None or one.high is not None or other.low is not None:
        return None
    return replace(one, high=other.high, with_high=other.with_high)


def _path(tokens: Tokens) -> Path:
    """("data", "x") for `event.data.x`; empty for anything else."""
    names = [text for kind, text in tokens if kind == "name"]
    is_plain = (
        len(tokens) % 2 == 1
        and all(kind == "name" for kind, _ in tokens[::2])
        and all(token == ("operator", ".") for token in tokens[1::2])
    )
    if not is_plain or names[0] != "event" or len(names) < 2:
        return ()
    if names[1] == "data" and len(names) > 2:
        return tuple(names[1:])
    return tuple(names[1:]) if names[1] in ENVELOPE and names[1] != "time" and len(names) == 2 else ()


def _literal(token: tuple[str, str]) -> str | int | bool | None:
    """The literal's value; None: unknown."""
    kind, text = token
    if kind == "string":
        found = PLAIN_STRING.fullmatch(text)
        return found.group(2) if found else None
    if kind == "number":
        return int(text) if PLAIN_INTEGER.fullmatch(text) else None
    return {"true": True, "false": False}.get(text) if kind == "name" else None


def _number(tokens: Tokens) -> Number | None:
    is_negative = len(tokens) == 2 and tokens[0] == ("operator", "-")
    kind, text = tokens[-1] if len(tokens) == 1 or is_negative else ("", "")
    if kind != "number" or not PLAIN_NUMBER.fullmatch(text):
        return None
    number = float(text) if "." in text else int(text)
    return -number if is_negative else number
