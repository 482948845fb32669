"""How many examples of a property, and how many cases of a kind, are tried: all of them in `make chaos`, a quarter in `make test`."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

FULL = bool(os.environ.get("WAKEFUL_FULL"))


def some_of(examples: int) -> int:
    return examples if FULL else examples // 4


def some_cases(cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: `make test` tries every fourth of them."""
    return [pytest.param(case, marks=[pytest.mark.chaos] if place % 4 else []) for place, case in enumerate(cases)]
