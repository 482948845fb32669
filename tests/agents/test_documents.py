"""The README's durable agent does what the README and docs/agents.md say of it."""

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agents import Agent
from agents.testing import Crashed, Journal, run_agent

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).resolve().parents[2]
CALLED = {"event invoice.paid#1": None, "approval#1": "approved"}


class Shop:
    """The README's example, with a mail server of ours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.welcomed: list[Any] = []
        mail: Any = ModuleType("shop.mail")
        mail.send_welcome = self.welcomed.append
        monkeypatch.setitem(sys.modules, "shop", ModuleType("shop"))
        monkeypatch.setitem(sys.modules, "shop.mail", mail)
        [code] = re.findall(r"```python\n([^`]*def onboarding\(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
        names: dict[str, Any] = {"__package__": "shop", "__name__": "shop.agents"}
        exec(compile(code, "README.md", "exec"), names)  # noqa: S102 (our own document)
        self.onboarding: Agent = names["onboarding"]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    return Shop(monkeypatch)


def test_a_customer_who_has_not_paid_is_called_once_somebody_agrees(shop: Shop) -> None:
    done = run_agent(shop.onboarding, data={"id": 7}, waits=CALLED)

    assert done.steps == ["welcome", "notify#1"]
    assert [notice.text for notice in done.notifications] == ["Please call customer 7"]
    assert done.journal.keys == ["welcome", "sleep#1", "event invoice.paid#1", "approval#1", "notify#1"]


@pytest.mark.parametrize(
    "waits", [{"event invoice.paid#1": {"customer": 7}}, {"event invoice.paid#1": None, "approval#1": "expired"}]
)
def test_one_who_has_paid_is_not_and_nobody_is_without_a_decision(shop: Shop, waits: dict[str, Any]) -> None:
    assert not run_agent(shop.onboarding, data={"id": 7}, waits=waits).notifications


def test_after_a_crash_nobody_is_welcomed_twice(shop: Shop) -> None:
    journal = Journal()
    with pytest.raises(Crashed):
        run_agent(shop.onboarding, data={"id": 7}, journal=journal, crash_after="welcome")

    done = run_agent(shop.onboarding, journal=journal, waits=CALLED)

    assert (done.steps, shop.welcomed) == (["notify#1"], [7])


def test_what_the_document_says_of_testing_it_holds(shop: Shop) -> None:
    document = (ROOT / "docs" / "agents.md").read_text()
    snippets = [code for code in re.findall(r"```python\n(.*?)```", document, re.DOTALL) if "(onboarding" in code]

    assert len(snippets) == 2
    for snippet in snippets:
        names = {"onboarding": shop.onboarding, "run_agent": run_agent, "pytest": pytest}
        exec(compile(snippet, "agents.md", "exec"), names)  # noqa: S102 (our own document)
    assert shop.welcomed == [7, 7]
