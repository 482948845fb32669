"""Caps that the code and settings declare become rows. A cap that an operator has changed stays as it is."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from django.conf import settings
from django.db import transaction

from agents import registry
from runs.budgets.caps import figure, set_rows_cap
from runs.budgets.wake import wake_waiting
from runs.budgets.windows import lock_of_budgets
from runs.models import Budget
from runs.models.audit import changes, record

Place = tuple[str, str, str, str]  # scope, name, period, measure


@dataclass(frozen=True)
class Declared:
    place: Place
    cap: Decimal
    at_cap: str = "wait"


def sync_budgets(by: str) -> list[str]:
    """Make the rows say what the code and settings declare; what changed, in words."""
    wanted = {each.place: each for each in declared()}
    with transaction.atomic():
        rows = {(row.scope, row.name, row.period, row.measure): row for row in Budget.objects.select_for_update()}
        # All that may be deleted, in the order of their ids: not those of one budget after those of another.
        lock_of_budgets([row.pk for place, row in rows.items() if place not in wanted or row.cap is None])
        changes = [change for each in wanted.values() if (change := _declare(each, rows.get(each.place), by))]
        changes += [_vanish(row, by) for place, row in rows.items() if row.declared is not None and place not in wanted]
    if changes:
        wake_waiting()
    return changes


def declared() -> Iterator[Declared]:
    for period, cap in (("day", settings.WAKEFUL_BUDGET_DAY_USD), ("month", settings.WAKEFUL_BUDGET_MONTH_USD)):
        if cap is not None:
            yield Declared(("installation", "", period, "usd"), cap)
    for agent in registry.agents_in_code():
        if agent.budget:
            for period, measure, cap in agent.budget.caps():
                yield Declared(("agent", agent.name, period, measure), cap, agent.budget.at_cap)


def _declare(wanted: Declared, row: Budget | None, by: str) -> str:
    scope, name, period, measure = wanted.place
    if row is None:
        row = Budget.objects.create(
            scope=scope,
            name=name,
            period=period,
            measure=measure,
            cap=wanted.cap,
            at_cap=wanted.at_cap,
            declared=wanted.cap,
        )
        record(by, "create", row, cap=str(wanted.cap))
        return f"created budget {row}"
    if (row.declared, row.at_cap) == (wanted.cap, wanted.at_cap):
        return ""
    before = {"declared": figure(row.declared), "at_cap": row.at_cap}
    if row.cap == row.declared:
        set_rows_cap(row, wanted.cap)
    row.declared, row.at_cap = wanted.cap, wanted.at_cap
    row.save(update_fields=["declared", "at_cap"])
    record(by, "changed", row, **changes(before, {"declared": figure(wanted.cap), "at_cap": wanted.at_cap}))
    return f"changed budget {row}"


def _vanish(row: Budget, by: str) -> str:
    """A cap that an operator has changed is the operator's from then on."""
    if row.cap != row.declared:
        Budget.objects.filter(pk=row.pk).update(declared=None)
        return f"budget {row} is declared no more; its cap stays, as an operator set it"
    record(by, "delete", row, cap=str(row.cap))
    row.delete()
    return f"deleted budget {row}"
