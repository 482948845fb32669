"""Costs of model requests and tool calls, and the answers of budgets to them. Amounts of money are US dollars."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal, Protocol

Measure = Literal["usd", "tokens", "requests", "tool_calls"]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The most that a request or a call may cost. `usd` None: the price of the model is not known."""

    usd: Decimal | None = Decimal(0)
    tokens: int = 0
    requests: int = 0
    tool_calls: int = 0
    model: str = ""


@dataclass(frozen=True, kw_only=True)
class Price:
    """An operator's price of a model, in dollars for a million tokens."""

    model: str
    input: Decimal
    output: Decimal
    cache_read: Decimal
    cache_write: Decimal


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Which measures of a run are capped, and the prices that operators have set."""

    measures: frozenset[str] = frozenset()
    prices: Sequence[Price] = ()


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A budget has no room for a request or a call. `until`: when its window turns; None: only a raised cap makes room. `is_final`: the
    run fails over it instead of waiting. `is_never`: no time and no other step makes room, only a person."""

    budget: str
    reason: str
    until: datetime | None = None
    is_final: bool = False
    is_never: bool = False


@dataclass(frozen=True, kw_only=True)
class Reserved:
    """The budget reserved for a model request: the ids of the reservations and of their windows."""

    ids: Sequence[int]
    windows: Sequence[int]


class NoRoom(Exception):
    """A budget has no room for the request to a model that a step is about to make. Nothing was sent."""

    def __init__(self, cost: Cost, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.cost = cost
        self.refusal = refusal


class Unreachable(Exception):
    """What decides about the request to a model cannot be read now. Nothing was sent."""


UNLIMITED = Limits()
Used = Mapping[str, Any]  # an amount for each measure; a measure that is missing or None is not known
NOTHING: Used = {"usd": "0", "tokens": 0, "requests": 0, "tool_calls": 0}


class Spends(Protocol):
    """Reserves and settles what requests to models cost."""

    def reserve(
        self, cost_of: Callable[[Limits], Cost | None], *, is_spare: bool = False
    ) -> tuple[Reserved | None, Limits]: ...

    def settle(self, reserved: Reserved, used: Used) -> None: ...
