"""What steps may cost, and what budgets say to it. Amounts of money are US dollars."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

Measure = Literal["usd", "tokens", "requests", "tool_calls"]


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The most that a step may cost. `usd` None: the price of the model is not known."""

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
    """A budget has no room for a step. `until`: when its window turns; None: only a raised cap makes room. `is_final`: the
    run fails over it instead of waiting."""

    budget: str
    reason: str
    until: datetime | None = None
    is_final: bool = False


UNLIMITED = Limits()
