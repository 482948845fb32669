"""Changes of budgets by operators. Waiting runs for which there is room now continue at once."""

from decimal import Decimal
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from agents.budget import RANGE, is_amount
from agents.guards.atomic import not_in_atomic_body
from runs.budgets.wake import try_again, wake_waiting
from runs.budgets.windows import cap_of_budget, lock_of_budgets, make
from runs.exceptions import IllegalState
from runs.models import Budget, BudgetWindow, ModelPrice, Run
from runs.models.audit import record

MOST_EXTRA = Decimal(10**13)  # on top of a cap: what the column can hold, less a cap


@not_in_atomic_body
def create_budget(
    *, scope: str, name: str = "", period: str, measure: str, cap: Decimal | None, at_cap: str = "wait", by: str
) -> Budget:
    """A cap of an operator. ValidationError names each field that makes no sense."""
    budget = Budget(scope=scope, name=name, period=period, measure=measure, cap=cap, at_cap=at_cap)
    budget.full_clean()
    with transaction.atomic():
        budget.save(force_insert=True)
        record(by, "create", budget, cap=figure(cap))
    budget.refresh_from_db()
    return budget


@not_in_atomic_body
def set_cap(budget_id: int, cap: Decimal | None, *, by: str) -> Budget:
    """Change a cap; None: there is none any more. ValueError: it is not an amount. Raises Budget.DoesNotExist."""
    if cap is not None and not is_amount(cap):
        raise ValueError(f"A cap is {RANGE}, or empty for no cap.")
    with transaction.atomic():
        budget = Budget.objects.select_for_update(no_key=True).get(pk=budget_id)
        was = budget.cap
        set_rows_cap(budget, cap)
        record(by, "cap", budget, cap=figure(cap), was=figure(was))
    wake_waiting()
    return budget


def set_rows_cap(budget: Budget, cap: Decimal | None) -> None:
    """A cap that applies again after a pause counts from the journals, because nothing was reserved meanwhile."""
    if budget.cap is None and cap is not None:
        lock_of_budgets([budget.pk])
        budget.windows.all().delete()
        budget.counts_since = Now()
    budget.cap = cap
    budget.save(update_fields=["cap", "counts_since"])
    budget.refresh_from_db()


@not_in_atomic_body
def allow_more(budget_id: int, amount: Decimal, *, by: str, run_id: UUID | None = None) -> Budget:
    """Allow this much on top of the cap, once: in the window that is now, or for one run where the budget is for each run.
    ValueError: that makes no sense. Raises Budget.DoesNotExist, Run.DoesNotExist."""
    budget = Budget.objects.get(pk=budget_id)
    if not (is_amount(amount) and amount > 0):
        raise ValueError(f"The amount must be above 0, and {RANGE}.")
    if (budget.period == Budget.Period.RUN) != (run_id is not None):
        raise ValueError("A budget for each run needs the run; any other takes none.")
    if run_id is not None:
        Run.objects.only("id").get(pk=run_id)
    cap = cap_of_budget(budget_id, run_id)
    if cap is None:
        raise IllegalState("This budget has no cap.", "uncapped")
    if cap.id is None:
        make([cap])
    with transaction.atomic():
        window = BudgetWindow.objects.filter(budget=budget, run_id=cap.run_id, starts_at=cap.starts_at)
        if not window.filter(extra__lt=MOST_EXTRA - amount).update(extra=F("extra") + amount):
            raise ValueError(f"A window allows less than {MOST_EXTRA:,} on top of its cap.")
        record(by, "allow", budget, amount=str(amount), **({"run": str(run_id)} if run_id else {}))
    wake_waiting()
    return budget


@not_in_atomic_body
def delete_budget(budget_id: int, *, by: str) -> None:
    """IllegalState: the code declares it, so it would come back; take its cap away instead."""
    with transaction.atomic():
        budget = Budget.objects.select_for_update().get(pk=budget_id)
        if budget.declared is not None:
            raise IllegalState("The code or a setting declares this budget. Empty its cap instead.", "declared")
        record(by, "delete", budget, cap=figure(budget.cap))
        lock_of_budgets([budget.pk])
        budget.delete()
    wake_waiting()


def figure(cap: Decimal | None) -> str | None:
    return None if cap is None else f"{cap.normalize():f}"


@not_in_atomic_body
def set_price(
    *,
    model: str,
    input: Decimal,
    output: Decimal,
    cache_read: Decimal | None = None,
    cache_write: Decimal | None = None,
    by: str,
) -> ModelPrice:
    """The price of a model for a million tokens, from the next request on. Runs whose request to it waits for budget try again."""
    given = {"input": input, "output": output, "cache_read": cache_read, "cache_write": cache_write}
    with transaction.atomic():
        price, _ = ModelPrice.objects.update_or_create(model=model, defaults=given)
        record(by, "price", price, model=model, **{name: figure(amount) for name, amount in given.items()})
    try_again(model)
    return price


@not_in_atomic_body
def delete_price(price_id: int, *, by: str) -> None:
    with transaction.atomic():
        price = ModelPrice.objects.get(pk=price_id)
        record(by, "delete", price, model=price.model)
        price.delete()
    try_again(price.model)
