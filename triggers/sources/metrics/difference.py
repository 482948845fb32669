"""The difference of two states: rows by their key that are missing, unexpected, or not as expected."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from triggers.sources.http.headers import storable

MOST_ROWS = 50_000  # of each state
SHOWN = 20  # examples of each kind of difference
CHARACTERS = 200  # of a value that is shown

Rows = Mapping[str, Any]


class Unusable(ValueError):
    """The rows cannot be compared; the message gives the reason."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    missing: list[str]  # expected, and not there
    unexpected: list[str]
    different: list[str]
    detail: dict[str, Any]

    @property
    def size(self) -> int:
        return len(self.missing) + len(self.unexpected) + len(self.different)


def rows_of(state: Any) -> Rows:
    """Rows by key: of a mapping, or of an iterable of keys, mappings or sequences, whose first value is the key. Unusable: it is
    something else, has a key twice, or more than MOST_ROWS rows."""
    pairs = state.items() if isinstance(state, Mapping) else map(_pair, _iterable(state))
    rows: dict[str, Any] = {}
    for key, value in pairs:
        if (name := str(key)) in rows:
            raise Unusable(f"it has the key {name[:CHARACTERS]!r} twice")
        if len(rows) == MOST_ROWS:
            raise Unusable(f"it has more than {MOST_ROWS:,} rows")
        rows[name] = _plain(value)
    return rows


def difference_of(expected: Rows, actual: Rows) -> Difference:
    missing = sorted(expected.keys() - actual.keys())
    unexpected = sorted(actual.keys() - expected.keys())
    different = sorted(key for key in expected.keys() & actual.keys() if expected[key] != actual[key])
    return Difference(
        missing=missing,
        unexpected=unexpected,
        different=different,
        detail={
            "missing": len(missing),
            "unexpected": len(unexpected),
            "different": len(different),
            "examples": {
                "missing": [{"key": _shown(key), "expected": _shown(expected[key])} for key in missing[:SHOWN]],
                "unexpected": [{"key": _shown(key), "actual": _shown(actual[key])} for key in unexpected[:SHOWN]],
                "different": [
                    {"key": _shown(key), "expected": _shown(expected[key]), "actual": _shown(actual[key])}
                    for key in different[:SHOWN]
                ],
            },
        },
    )


def _iterable(state: Any) -> Iterable[Any]:
    if isinstance(state, (str, bytes)) or not isinstance(state, Iterable):
        raise Unusable(f"it is {type(state).__name__}; it must be rows: a mapping, or an iterable")
    return state


def _pair(row: Any) -> tuple[Any, Any]:
    if isinstance(row, Mapping):
        row = list(row.values())
    if isinstance(row, (list, tuple)):
        if not row:
            raise Unusable("it has an empty row")
        return row[0], list(row[1:])
    return row, []


def _plain(value: Any) -> Any:
    """The value in JSON's form, so that rows of two origins can be equal: 1 and Decimal(1), a tuple and a list."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return value.isoformat() if isinstance(value, (date, datetime)) else str(value)


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    return storable(str(value))[:CHARACTERS]
