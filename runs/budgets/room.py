"""Is there room for a step in the windows of its budgets? Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from agents.exceptions import Permanent
from agents.journal.budget import Cost, Refusal
from runs.models import Budget

UNITS = {"tokens": "tokens", "requests": "requests", "tool_calls": "tool calls"}
PERIODS = {"run": "for each run", "hour": "an hour", "day": "a day", "month": "a month"}


@dataclass(frozen=True, kw_only=True)
class Cap:
    """A budget that applies to a run, and its window now; `id` None: it has not been made yet."""

    budget: int
    scope: str
    name: str
    period: str
    measure: str
    cap: Decimal
    at_cap: str
    run_id: UUID
    starts_at: datetime
    ends_at: datetime | None
    id: int | None = None
    spent: Decimal = Decimal(0)
    reserved: Decimal = Decimal(0)
    extra: Decimal = Decimal(0)

    @property
    def allowed(self) -> Decimal:
        return self.cap + self.extra

    @property
    def label(self) -> str:
        whose = "all runs" if self.scope == Budget.Scope.INSTALLATION else f"{self.scope} {self.name}"
        return f"{whose}: {amount_in_words(self.measure, self.cap)} {PERIODS[self.period]}"

    def has_room_for(self, amount: Decimal) -> bool:
        return self.spent + self.reserved + amount <= self.allowed

    def is_used_up_for(self, amount: Decimal) -> bool:
        """Is there no room even if the steps under way cost nothing?"""
        return self.spent + amount > self.allowed

    def has_never_room_for(self, amount: Decimal) -> bool:
        """Is there no room in its next window either?"""
        return amount > self.allowed or (self.period == Budget.Period.RUN and self.is_used_up_for(amount))


def amount_of(cost: Cost, measure: str, *, allows_unpriced: bool) -> Decimal:
    """Permanent: the price of the model is not known, and that is not allowed."""
    if measure != "usd":
        return Decimal(getattr(cost, measure))
    if cost.usd is None and not allows_unpriced:
        raise Permanent(
            f"the price of model {cost.model!r} is not known, and a cap of money applies to this run. Add its price under "
            "Model prices, or set WAKEFUL_UNPRICED=allow; then requeue the run"
        )
    return cost.usd or Decimal(0)


def refusal_of(asked: Sequence[tuple[Cap, Decimal]]) -> Refusal | None:
    """Why these windows have no room for these amounts; None: they have."""
    full = [(cap, amount) for cap, amount in asked if not cap.has_room_for(amount)]
    if not full:
        return None
    cap, amount = next(((cap, amount) for cap, amount in full if cap.is_used_up_for(amount)), full[0])
    return Refusal(
        budget=cap.label,
        reason=_reason(cap, amount),
        until=_until(full),
        is_never=any(cap.has_never_room_for(amount) for cap, amount in full),
        is_final=any(cap.at_cap == Budget.AtCap.FAIL and cap.is_used_up_for(amount) for cap, amount in full),
    )


def _until(full: Sequence[tuple[Cap, Decimal]]) -> datetime | None:
    """When the last of the windows turns; None: a cap is less than the step alone may cost, or is for the run."""
    ends = [cap.ends_at for cap, amount in full if amount <= cap.cap]
    return max((end for end in ends if end), default=None) if len(ends) == len(full) and all(ends) else None


def _reason(cap: Cap, amount: Decimal) -> str:
    extra = f" and {amount_in_words(cap.measure, cap.extra)} more" if cap.extra else ""
    reserved = f", {amount_in_words(cap.measure, cap.reserved)} reserved by steps under way" if cap.reserved else ""
    return (
        f"budget of {cap.label}{extra}; {amount_in_words(cap.measure, cap.spent)} spent{reserved}, and the next step may cost "
        f"{amount_in_words(cap.measure, amount)}"
    )


def amount_in_words(measure: str, amount: Decimal) -> str:
    if measure != Budget.Measure.USD:
        return f"{amount:,.0f} {UNITS[measure]}"
    cents = amount.quantize(Decimal("0.01"))
    return f"${cents if cents == amount else amount.quantize(Decimal('0.000001')).normalize():f}"
