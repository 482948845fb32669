"""Budgets near their cap, and runs that wait for budget, are problems; metrics say what was spent today."""

from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client
from django.utils import timezone

from config.health.problems import problems
from config.health.situation import read_situation
from runs.budgets.windows import current, make
from runs.models import Budget, BudgetWindow, Step, Wait
from runs.sign import Problem
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def found() -> dict[str, Problem]:
    return {problem.name: problem for problem in problems(read_situation()) if problem.name.startswith("budget")}


def spend(amount: str) -> Budget:
    budget = Budget.objects.create(scope="agent", name="clerk", period="day", measure="usd", cap=Decimal(5))
    make(list(current().values()))
    BudgetWindow.objects.update(spent=Decimal(amount))
    return budget


def test_a_budget_is_a_problem_from_80_per_cent_on() -> None:
    budget = spend("3.99")
    assert not found()

    BudgetWindow.objects.update(spent=Decimal(4))

    problem = found()[f"budget:{budget.pk}"]
    assert problem.severity == "warning"
    assert problem.text.startswith("Agent clerk has spent $4.00 of $5.00 in this day (UTC), 80%.")
    assert problem.is_alarm


def test_an_amount_that_is_allowed_once_counts_as_part_of_the_cap() -> None:
    spend("4")

    BudgetWindow.objects.update(extra=Decimal(5))

    assert not found()


def test_runs_that_wait_for_budget_are_an_alarm_after_a_while() -> None:
    run = make_run(status="waiting")
    wanted = {"reason": "budget of agent clerk: $5.00 a day; $5.00 spent, and the next step may cost $0.02"}
    wait = Wait.objects.create(run=run, key="budget:1 x", position=0, kind="budget", asked=wanted)
    assert not found()["budget-waits"].is_alarm

    Wait.objects.filter(pk=wait.pk).update(created_at=timezone.now() - timedelta(minutes=2))

    problem = found()["budget-waits"]
    assert problem.is_alarm
    assert "1 run is waiting for budget, the oldest for 2 min: budget of agent clerk: $5.00 a day" in problem.text


def test_metrics_show_the_cost_of_today() -> None:
    run = make_run(agent="clerk", trigger="letters")
    usage = {"model": "gpt-4o", "cost": "0.25", "input_tokens": 100, "output_tokens": 20}
    entry = {"effect": "idempotent", "kind": "model", "status": "done", "usage": usage}
    Step.objects.create(run=run, key="a", position=0, epoch=1, ended_at=timezone.now(), **entry)
    Step.objects.create(run=run, key="copied by a fork", position=1, epoch=0, ended_at=timezone.now(), **entry)
    long_ago = timezone.now() - timedelta(days=2)
    Step.objects.create(run=run, key="earlier", position=2, epoch=1, ended_at=long_ago, **entry)

    scraped = Client().get("/metrics").content.decode()

    named = '{agent="clerk",model="gpt-4o",trigger="letters"}'
    assert f"wakeful_llm_spent_today_usd{named} 0.25" in scraped
    assert f"wakeful_llm_tokens_today{named} 120.0" in scraped
    assert f"wakeful_llm_requests_today{named} 1.0" in scraped
