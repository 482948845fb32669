"""A trial asks the model and shows what would be sent; it sends and keeps nothing, and what it spends counts."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from threading import Event as Signal
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.models.functions import Now
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agents import registry, tool
from agents.budget import Budget as Caps
from agents.journal.budget import Cost, Refusal, Reserved
from agents.llm.providers.stand_in import StandIn, standing_in
from agents.models import ChecklistItem, SessionTurn
from runs.actions.checklists import ItemEdit
from runs.actions.stop_agents import EVERY
from runs.budgets import wake
from runs.db.session import READ_WRITE
from runs.db.sql import execute, fetch
from runs.exceptions import IllegalState
from runs.models import AgentStop, AuditEntry, BudgetWindow, Notification, Reservation, Run
from runs.shadow.shadow import Outcome
from runs.shadow.trial import TrialStore
from tests.support.prompt_agents import make_prompt_agent
from tests.support.triggers import make_event
from triggers.dispatch.shadow import shadow_event
from triggers.models import Event, Trigger
from triggers.prompt_agents import trial
from triggers.prompt_agents.edit import delete_prompt_agent
from triggers.prompt_agents.trial import try_prompt_agent
from triggers.prompt_agents.wakes import OnEvents

pytestmark = pytest.mark.django_db(transaction=True)
NEWS = {"notify": True, "urgency": "high", "text": "Fix billing first", "items": [{"item": 1, "outcome": "news"}]}


class Scripted:
    """A model that makes its calls one after the other; the last is the verdict. `offered`: the tools that it may call."""

    def __init__(self) -> None:
        self.calls: list[Any] = [("final_result", NEWS)]
        self.offered: list[str] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.offered = [one.name for one in info.function_tools]
        self.meanwhile()
        name, given = self.calls[sum(isinstance(message, ModelResponse) for message in messages)]
        return ModelResponse(parts=[ToolCallPart(name, given)])


@pytest.fixture
def model() -> Iterator[Scripted]:
    scripted = Scripted()
    with standing_in(StandIn(model=FunctionModel(scripted.answer, model_name="scripted"))):
        yield scripted


def left() -> tuple[int, ...]:
    return Run.objects.count(), Event.objects.count(), Notification.objects.count()


def test_a_trial_shows_the_verdict_and_sends_nothing(model: Scripted) -> None:
    model.calls.insert(0, ("failed_runs", {}))
    agent = make_prompt_agent(tools=("failed_runs",), checklist=[ItemEdit(text="failed runs")], emit="triage.done")

    tried = try_prompt_agent(agent, by="bob")

    assert (tried.outcome, tried.error) == (Outcome.SUCCEEDS, "")
    assert tried.result["text"] == "Fix billing first"
    assert [notice.text for notice in tried.left.notices] == ["Fix billing first"]
    assert [emission.type for emission in tried.left.emissions] == ["triage.done"]
    assert left() == (0, 0, 0)
    assert ChecklistItem.objects.get().last_outcome == ""
    entry = AuditEntry.objects.get(action="try")
    assert (entry.by, entry.detail["version"]) == ("bob", 1)


def test_a_trial_stops_where_the_agent_would_need_approval(model: Scripted) -> None:
    tried = try_prompt_agent(make_prompt_agent(ask_first=True), by="bob")

    assert tried.outcome == Outcome.STOPS
    assert tried.stop is not None
    assert "May triage notify people?" in tried.stop.said
    assert tried.stop.arguments == {"text": "Fix billing first", "urgency": "high"}


def test_a_tool_that_acts_outside_is_not_called(model: Scripted) -> None:
    called = []

    @tool(effect="at_most_once")
    def refund(invoice: int) -> str:
        """Refund an invoice."""
        called.append(invoice)
        return "done"

    model.calls.insert(0, ("refund", {"invoice": 7}))

    tried = try_prompt_agent(make_prompt_agent(tools=("refund",)), by="bob")

    assert tried.outcome == Outcome.STOPS
    assert called == []


def test_the_tools_that_an_operator_allows_its_trigger_are_all_that_it_has(model: Scripted) -> None:
    agent = make_prompt_agent(tools=("failed_runs",), when=[OnEvents(types=["a.b"])])
    Trigger.objects.update(tools=[])

    try_prompt_agent(agent, by="bob")

    assert model.offered == []


def test_the_cost_of_a_trial_counts_and_an_exhausted_budget_stops_it(model: Scripted) -> None:
    agent = make_prompt_agent(budget=Caps(day_requests=1))

    first = try_prompt_agent(agent, by="bob")
    second = try_prompt_agent(agent, by="bob")

    assert (first.outcome, second.outcome) == (Outcome.SUCCEEDS, Outcome.STOPS)
    assert second.stop is not None
    assert "1 requests spent" in second.stop.said
    assert BudgetWindow.objects.get().spent == 1


def test_trials_at_the_same_time_do_not_overspend_together(model: Scripted) -> None:
    agent = make_prompt_agent(budget=Caps(day_requests=1))
    others: list[int] = []

    def beside() -> None:
        claim = trial._claim(agent, None)
        other = TrialStore(claim)
        refusal = other.reserve("request 1", Cost(requests=1))
        other.close()
        assert isinstance(refusal, Refusal)
        others.append(wake.settle_lost())

    model.meanwhile = in_another_thread(beside)

    tried = try_prompt_agent(agent, by="bob")

    assert (tried.outcome, others) == (Outcome.SUCCEEDS, [0])
    window = BudgetWindow.objects.get()
    assert (window.spent, window.reserved) == (Decimal(1), Decimal(0))


def test_a_trial_that_freezes_as_it_reserves_does_not_hold_up_runs(model: Scripted) -> None:
    claim = trial._claim(make_prompt_agent(budget=Caps(day_requests=9)), None)
    [tried, other] = [TrialStore(claim), TrialStore(claim)]
    ask = Cost(usd=Decimal("0.01"), tokens=1, requests=1, model="m")
    other.reserve("first", ask)
    frozen, holds = Signal(), Signal()

    def keep(key: str, asked: Any) -> Any:
        holds.set()
        frozen.wait(30)
        return fetch("SELECT 1")

    tried._reservations._keep = keep  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        freezes = pool.submit(tried.reserve, "second", ask)
        holds.wait(10)
        began = time.monotonic()
        reserved = other.reserve("third", ask)
        took = time.monotonic() - began
        frozen.set()
        with pytest.raises(OperationalError):
            freezes.result()
        tried.close()
    other.close()

    assert isinstance(reserved, Reserved) and took < 9


def test_a_trial_that_is_killed_has_spent_what_it_reserved_and_stands_in_the_audit_log(model: Scripted) -> None:
    class Killed(BaseException):
        pass

    def die() -> None:
        raise Killed

    model.meanwhile = die
    try_prompt_agent(make_prompt_agent(budget=Caps(day_requests=5)), by="bob")
    assert AuditEntry.objects.filter(action="try").exists()
    assert wake.settle_lost() == 0

    Reservation.objects.update(expires_at=Now())

    assert wake.settle_lost() == 1
    assert BudgetWindow.objects.get().spent == 1


def test_the_audit_entry_is_written_before_the_model_is_called(model: Scripted) -> None:
    found: list[bool] = []
    model.meanwhile = in_another_thread(lambda: found.append(AuditEntry.objects.filter(action="try").exists()))

    try_prompt_agent(make_prompt_agent(), by="bob")

    assert found == [True]


@pytest.mark.parametrize("which", ["triage", EVERY])
def test_a_stopped_agent_is_not_tried_on_its_model(model: Scripted, which: str) -> None:
    agent = make_prompt_agent()
    calls: list[int] = []
    model.meanwhile = lambda: calls.append(1)
    AgentStop.objects.create(agent=agent.name if which == "triage" else which, stopped_by="test")

    tried = try_prompt_agent(agent, by="bob")

    assert (tried.outcome, calls) == (Outcome.STOPS, [])
    assert tried.stop is not None
    assert "is stopped, so no request to a model begins" in tried.stop.said


def in_another_thread(act: Callable[[], None]) -> Callable[[], None]:
    """In a database session that does not belong to the trial."""

    def run() -> None:
        def there() -> None:
            try:
                execute(READ_WRITE)
                act()
            finally:
                connection.close()

        with ThreadPoolExecutor(1) as thread:
            thread.submit(there).result()

    return run


def test_a_trial_leaves_the_session_as_it_is(model: Scripted) -> None:
    tried = try_prompt_agent(make_prompt_agent(session="ops"), by="bob")

    assert (tried.outcome, tried.error) == (Outcome.SUCCEEDS, "")
    assert not SessionTurn.objects.exists()


def test_a_deleted_one_is_not_tried(model: Scripted) -> None:
    agent = make_prompt_agent()
    delete_prompt_agent(agent.pk, by="bob")
    agent.refresh_from_db()

    with pytest.raises(IllegalState, match="is deleted"):
        try_prompt_agent(agent, by="bob")


@pytest.mark.parametrize("when", [[], [OnEvents(types=["a.b"])]])
def test_a_trial_in_a_process_with_an_old_catalog_gets_the_durable_timeout(
    model: Scripted, monkeypatch: pytest.MonkeyPatch, settings: Any, when: list[Any]
) -> None:
    settings.WAKEFUL_DURABLE_TIMEOUT = timedelta(minutes=15)
    agent = make_prompt_agent(when=when)
    registry.know_prompt_agents({})
    claims = []
    monkeypatch.setattr(trial, "shadow", lambda claim, **given: claims.append(claim))

    try_prompt_agent(agent, by="bob")

    assert [(one.policy.durable, one.policy.timeout) for one in claims] == [(True, 900)]


def test_an_event_is_tried_again_by_a_process_that_has_not_looked(model: Scripted) -> None:
    make_prompt_agent(when=[OnEvents(types=["a.b"])])
    event = make_event(type="a.b")
    registry.know_prompt_agents({})

    tried = shadow_event(event, Trigger.objects.get(), by="bob")

    assert tried.outcome == Outcome.STOPS  # at its model, which a shadow run does not ask
