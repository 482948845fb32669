"""Caps of the code and of settings become rows; an operator's stay."""

from decimal import Decimal
from typing import Any

import pytest

from agents import Budget as Declared
from agents import registry
from agents.agent import Agent, agent
from agents.exceptions import DeclarationError
from runs.budgets.caps import set_cap
from runs.budgets.declarations import sync_budgets
from runs.models import AuditEntry, Budget

pytestmark = pytest.mark.django_db


def declare(monkeypatch: pytest.MonkeyPatch, budget: Declared | None) -> None:
    clerk = Agent(name="clerk", body=lambda run: None, durable=True, budget=budget)
    monkeypatch.setattr(registry, "agents_in_code", lambda: [clerk])


def caps() -> dict[tuple[str, str, str], Decimal | None]:
    return {(row.scope, row.period, row.measure): row.cap for row in Budget.objects.all()}


def test_caps_of_an_agent_and_of_the_settings_become_rows(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.WAKEFUL_BUDGET_DAY_USD = Decimal(20)
    declare(monkeypatch, Declared(run_usd="0.20", day_usd=5, run_tokens=60_000))

    sync_budgets("test")

    assert caps() == {
        ("agent", "run", "usd"): Decimal("0.20"),
        ("agent", "run", "tokens"): 60_000,
        ("agent", "day", "usd"): 5,
        ("installation", "day", "usd"): 20,
    }
    assert sync_budgets("test") == []


def test_an_operators_cap_survives_a_deploy_and_a_declared_one_follows_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare(monkeypatch, Declared(run_usd="0.20", day_usd="5"))
    sync_budgets("test")
    set_cap(Budget.objects.get(period="day").pk, Decimal(7), by="admin:ann")

    declare(monkeypatch, Declared(run_usd="0.30", day_usd="6"))
    sync_budgets("test")

    assert caps() == {("agent", "run", "usd"): Decimal("0.30"), ("agent", "day", "usd"): 7}
    assert AuditEntry.objects.filter(
        kind="budget", action="cap", by="admin:ann", detail__cap="7", detail__was="5"
    ).exists()


def test_a_budget_that_is_no_longer_declared_is_deleted_unless_an_operator_changed_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declare(monkeypatch, Declared(run_usd="0.20", day_usd="5"))
    sync_budgets("test")
    set_cap(Budget.objects.get(period="day").pk, Decimal(7), by="admin:ann")

    declare(monkeypatch, None)
    sync_budgets("test")

    assert caps() == {("agent", "day", "usd"): 7}
    assert Budget.objects.get().declared is None


@pytest.mark.parametrize(
    "wrong", [{"run_usd": "much"}, {"run_usd": 0.2}, {"day_usd": "-1"}, {"day_usd": "1e-12"}, {"at_cap": "stop"}]
)
def test_an_invalid_budget_is_refused_where_it_is_declared(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="budget: "):
        Declared(**wrong)


def test_only_durable_agents_have_budgets() -> None:
    with pytest.raises(DeclarationError, match="durable=True"):
        agent("atomic", budget=Declared(run_usd=1))
