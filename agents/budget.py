"""The budget that an author declares for an agent: `@agent(…, budget=Budget(run_usd="0.20", day_usd="5",
run_tokens=60_000))`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Literal

from .exceptions import DeclarationError

PERIODS = ("run", "hour", "day", "month")
MEASURES = ("usd", "tokens", "requests", "tool_calls")
Amount = str | int | Decimal | None
PLACES = 10  # of a decimal
RANGE = f"an amount from 0 to a trillion with at most {PLACES} decimal places"


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Caps on what a run of an agent uses, and on what all its runs use in an hour, a day or a month of UTC: US dollars,
    tokens, model requests, tool calls. `at_cap`: a run that has no budget left waits for more, or fails. Operators may change
    each cap. Raises DeclarationError."""

    run_usd: Amount = None
    run_tokens: Amount = None
    run_requests: Amount = None
    run_tool_calls: Amount = None
    hour_usd: Amount = None
    hour_tokens: Amount = None
    hour_requests: Amount = None
    hour_tool_calls: Amount = None
    day_usd: Amount = None
    day_tokens: Amount = None
    day_requests: Amount = None
    day_tool_calls: Amount = None
    month_usd: Amount = None
    month_tokens: Amount = None
    month_requests: Amount = None
    month_tool_calls: Amount = None
    at_cap: Literal["wait", "fail"] = "wait"

    def __post_init__(self) -> None:
        list(self.caps())
        if self.at_cap not in ("wait", "fail"):
            raise DeclarationError(f'budget: at_cap {self.at_cap!r} is not "wait" or "fail"')

    def caps(self) -> Iterator[tuple[str, str, Decimal]]:
        """Each cap as (period, measure, amount)."""
        for period in PERIODS:
            for measure in MEASURES:
                given = getattr(self, f"{period}_{measure}")
                if given is not None:
                    yield period, measure, _amount(f"{period}_{measure}", given)


def _amount(name: str, given: Amount) -> Decimal:
    try:
        if isinstance(given, bool | float):
            raise InvalidOperation
        amount = Decimal(given or 0)
    except InvalidOperation:
        raise DeclarationError(
            f'budget: {name} {given!r} is not an amount; write a text such as "0.20", or a whole number'
        ) from None
    if not is_amount(amount):
        raise DeclarationError(f"budget: {name} {given!r} is not {RANGE}")
    return amount


def is_amount(amount: Decimal) -> bool:
    """Can this number be a cap, that is, does the database store it unchanged?"""
    return amount.is_finite() and 0 <= amount < 10**12 and round(amount, PLACES) == amount
