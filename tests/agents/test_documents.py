"""The agents of README.md and docs/ do what stands there."""

import re
import sys
from datetime import timedelta
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from pydantic_ai.models.test import TestModel

import agents
from agents import Agent, Fire, Quiet, registry
from agents.testing import Crashed, Journal, ask_gate, run_agent

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[2]
CALLED = {"event invoice.paid#1": None, "approval#1": "approved"}


class Shop:
    """The example of docs/durability.md, with a mail server of ours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.welcomed: list[Any] = []
        mail: Any = ModuleType("shop.mail")
        mail.send_welcome = self.welcomed.append
        monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
        monkeypatch.setitem(sys.modules, "shop.mail", mail)
        [code] = re.findall(
            r"```python\n([^`]*def onboarding\(.*?)```", (ROOT / "docs/durability.md").read_text(), re.DOTALL
        )
        names: dict[str, Any] = {"__package__": "shop", "__name__": "shop.agents"}
        exec(compile(code, "durability.md", "exec"), names)  # noqa: S102 (our own document)
        self.onboarding: Agent = names["onboarding"]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(monkeypatch)


def test_a_customer_who_has_not_paid_is_called_once_a_person_agrees(shop: Shop) -> None:
    done = run_agent(shop.onboarding, data={"id": 7}, waits=CALLED)

    assert done.steps == ["welcome", "notify#1"]
    assert [notice.text for notice in done.notifications] == ["Please call customer 7"]
    assert done.journal.keys == ["welcome", "sleep#1", "event invoice.paid#1", "approval#1", "notify#1"]


@pytest.mark.parametrize(
    "waits", [{"event invoice.paid#1": {"customer": 7}}, {"event invoice.paid#1": None, "approval#1": "expired"}]
)
def test_a_customer_who_has_paid_is_not_called_and_no_call_is_made_without_a_decision(
    shop: Shop, waits: dict[str, Any]
) -> None:
    assert not run_agent(shop.onboarding, data={"id": 7}, waits=waits).notifications


def test_after_a_crash_no_one_is_welcomed_twice(shop: Shop) -> None:
    journal = Journal()
    with pytest.raises(Crashed):
        run_agent(shop.onboarding, data={"id": 7}, journal=journal, crash_after="welcome")

    done = run_agent(shop.onboarding, journal=journal, waits=CALLED)

    assert (done.steps, shop.welcomed) == (["notify#1"], [7])


def test_the_checkout_of_the_docs_has_the_step_keys_of_the_docs() -> None:
    sent: list[str] = []

    def post(path: str, data: Any, idempotency_key: str) -> Any:
        sent.append(idempotency_key)
        return SimpleNamespace(status=200, json=lambda: data)

    checkout = declared_in_document(
        "checkout",
        ask_for_prices=lambda cart: {"tea": 5},
        book_order=lambda cart, prices: {"number": "A-1", "parcels": ["p1", "p2"]},
        post=post,
        send_mail=lambda number: None,
    )

    done = run_agent(checkout, data={"cart": 7})

    assert done.steps == ["prices", "book", "label:p1", "label:p2", "mail"]
    assert [key.partition(":")[2] for key in sent] == ["label:p1", "label:p2"]


def test_the_documents_async_agent_gathers_steps() -> None:
    async def ask_shop(shop: str) -> str:
        return shop

    compare = declared_in_document("compare", ask_shop=ask_shop, save_best=lambda offers: None)

    assert run_agent(compare, input={"shops": ["a", "b"]}).steps == ["ask:a", "ask:b", "save"]


def declared_in_document(name: str, **names: Any) -> Agent:
    """The agent of docs/agents.md, with what it calls."""
    document = (ROOT / "docs" / "agents.md").read_text()
    [code] = [code for code in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if f"def {name}(" in code]
    exec(compile(code, "agents.md", "exec"), names)  # noqa: S102 (our own document)
    agent: Agent = names[name]
    return agent


def test_the_test_snippets_of_the_docs_pass(shop: Shop) -> None:
    document = (ROOT / "docs" / "agents.md").read_text()
    snippets = [code for code in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if "(onboarding" in code]

    assert len(snippets) == 2
    for snippet in snippets:
        names = {"onboarding": shop.onboarding, "run_agent": run_agent, "pytest": pytest}
        exec(compile(snippet, "agents.md", "exec"), names)  # noqa: S102 (our own document)
    assert shop.welcomed == [7, 7]


def test_the_heartbeat_agents_of_the_documents_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "heartbeats.md").read_text()
    [watch] = re.findall(r"```python\n(from agents import Fire.*?)```", text, re.DOTALL)
    [disk] = re.findall(r"```python\n(@agent\(\"disk-watch\".*?)```", text, re.DOTALL)
    models: Any = ModuleType("desk_of_docs.models")
    models.Backup = models.Ticket = Ticket = MagicMock()
    monkeypatch.setitem(sys.modules, "desk_of_docs", ModuleType("desk_of_docs"))
    monkeypatch.setitem(sys.modules, "desk_of_docs.models", models)
    names: dict[str, Any] = {name: getattr(agents, name) for name in agents.__all__}
    names |= {"__package__": "desk_of_docs", "__name__": "desk_of_docs.agents"}
    exec(compile(watch, "docs/heartbeats.md", "exec"), names)  # noqa: S102 (our own document)
    exec(compile(disk, "docs/heartbeats.md", "exec"), names)  # noqa: S102
    Ticket.objects.order_by.return_value.values_list.return_value.first.return_value = 8

    assert ask_gate(registry.get("desk-watch"), last=8) == Quiet("no new ticket")
    assert ask_gate(registry.get("desk-watch"), last=7) == Fire("a new ticket", state=8)
    assert registry.get("disk-watch").checklist == {"/": timedelta(hours=1), "/srv": None}


@pytest.mark.parametrize(("urgent", "texts"), [(True, ["Urgent: No login"]), (False, [])])
def test_the_agent_on_the_first_screen_of_the_readme_gets_approval_before_it_notifies(
    urgent: bool, texts: list[str]
) -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"__name__": "tickets.agents"}
    exec(compile(code, "README.md", "exec"), names)  # noqa: S102 (our own document)
    model = TestModel(custom_output_args={"urgent": urgent, "summary": "No login"})

    done = run_agent(names["ticket_triage"], data={"text": "?"}, model=model, waits={"approval#1": "approved"})

    assert [notice.text for notice in done.notifications] == texts
    assert done.result == {"urgent": urgent, "summary": "No login"}
