"""The pages of budgets: a person raises a cap and the parked run goes on."""

from decimal import Decimal

import pytest
from django.test import Client

from runs.budgets.windows import cap_of_budget, make
from runs.models import AuditEntry, Budget, BudgetWindow, ModelPrice, Run, Wait
from tests.config.console.conftest import LogIn
from tests.support.console import page_of
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db
REASON = "budget of all runs: $1.00 a day; $1.00 spent, and the next step may cost $0.02"


def make_budget(period: str = "day") -> Budget:
    return Budget.objects.create(scope="installation", period=period, measure="usd", cap=Decimal(1))


def parked(spent: str = "1") -> Run:
    budget = Budget.objects.get()
    run = make_run(status="waiting")
    requested = {
        "budget": "all runs: $1.00 a day",
        "reason": REASON,
        "usd": "0.02",
        "tokens": 60,
        "requests": 1,
        "tool_calls": 0,
    }
    Wait.objects.create(run=run, key="budget:1 x", position=0, kind="budget", asked=requested)
    cap = cap_of_budget(budget.pk, run.pk)
    assert cap
    make([cap])
    BudgetWindow.objects.update(spent=Decimal(spent))
    return run


def status_of(run: Run) -> str:
    run.refresh_from_db()
    return run.status


def test_a_parked_run_goes_on_when_its_cap_is_raised(admin: Client) -> None:
    budget = make_budget()
    run = parked()
    assert REASON in admin.get(page_of("runs_run", run)).content.decode()

    admin.post(page_of("runs_budget", budget).replace("change", "cap"), {"cap": "1.01"})
    assert status_of(run) == "waiting"  # a cent is not enough
    admin.post(page_of("runs_budget", budget).replace("change", "cap"), {"cap": "1.02"})

    assert status_of(run) == "queued"
    assert AuditEntry.objects.filter(kind="budget", action="cap", by__startswith="admin:").count() == 2


def test_a_cap_of_each_run_is_raised_for_one_of_them(admin: Client) -> None:
    budget = make_budget("run")
    first, second = parked(), parked()

    form = {"amount": "0.02", "run": str(first.pk)}
    admin.post(page_of("runs_budget", budget).replace("change", "allow"), form)

    assert (status_of(first), status_of(second)) == ("queued", "waiting")


def test_the_form_names_what_makes_no_sense(admin: Client) -> None:
    budget = make_budget("run")

    answer = admin.post(page_of("runs_budget", budget).replace("change", "allow"), {"amount": "1"})

    assert "needs the run" in answer.content.decode()


def test_a_budget_and_a_price_are_made_by_hand(admin: Client) -> None:
    form = {"scope": "agent", "name": "clerk", "period": "month", "measure": "tokens", "cap": "5000", "at_cap": "fail"}
    admin.post("/admin/runs/budget/add/", form)
    admin.post("/admin/runs/modelprice/add/", {"model": "house-model", "input": "1.5", "output": "2"})

    assert str(Budget.objects.get()) == "agent clerk, tokens per month"
    assert ModelPrice.objects.get().input == Decimal("1.5")


def test_a_viewer_of_budgets_cannot_raise_a_cap(log_in: LogIn) -> None:
    budget = make_budget()
    client = log_in("runs.view_budget")

    assert client.get(page_of("runs_budget", budget)).status_code == 200
    assert client.post(page_of("runs_budget", budget).replace("change", "cap"), {"cap": "9"}).status_code == 403
    budget.refresh_from_db()
    assert budget.cap == 1
