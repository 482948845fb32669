"""What a model request may cost is reserved before it, and settled in the commit of its entry."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.fallback import FallbackModel

from agents import AgentRun
from runs import executor
from runs.budgets import wake
from runs.budgets.caps import allow_more, create_budget, set_cap
from runs.claim import Claim
from runs.db.sql import fetch
from runs.models import Budget, BudgetWindow, Reservation, Step, Wait
from runs.transitions.outcome import Outcome
from tests.support.durable import Lab, lab
from tests.support.paid import PaidModel, price

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]


def cap(amount: str, *, measure: str = "usd", period: str = "day", scope: str = "installation", **more: Any) -> Budget:
    return create_budget(scope=scope, period=period, measure=measure, cap=Decimal(amount), by="test", **more)


def asks(model: PaidModel, *, times: int = 1) -> Any:
    def body(run: AgentRun) -> list[str]:
        return [run.llm(model.agent(), f"question {number}").output for number in range(times)]

    return body


def window() -> BudgetWindow:
    return BudgetWindow.objects.get()


def amounts() -> tuple[Decimal, Decimal]:
    """Spent and reserved."""
    return window().spent, window().reserved


def test_a_request_is_spent_at_what_it_cost_not_at_what_it_could_have_cost(lab: Lab) -> None:
    price()
    cap("1.00")
    model = PaidModel("four", output_tokens=10, max_tokens=20)
    during: list[tuple[Decimal, Decimal]] = []
    model.meanwhile = lambda: during.append(amounts())

    run = lab.run(asks(model))

    assert run.status == "succeeded"
    assert during == [(Decimal(0), Decimal("0.20"))]
    assert amounts() == (Decimal("0.10"), Decimal(0))
    assert not Reservation.objects.exists()


def test_a_run_without_room_waits_and_goes_on_when_the_cap_is_raised(lab: Lab) -> None:
    price()
    budget = cap("0.25")
    model = PaidModel("four", output_tokens=10, max_tokens=20)

    run = lab.run(asks(model, times=2))

    wait = Wait.objects.get(run=run)
    assert (run.status, wait.kind, wait.status) == ("waiting", "budget", "open")
    assert run.status_reason == ("budget of all runs: $0.25 a day; $0.10 spent, and the next step may cost $0.20")
    assert wait.due_at == window().ends_at

    set_cap(budget.pk, Decimal("0.30"), by="test")
    run = lab.go_on(run)

    assert (run.status, model.requests, window().spent) == ("succeeded", 2, Decimal("0.20"))


def test_it_goes_on_when_the_window_turns_and_waits_again_if_there_is_no_room_then(lab: Lab) -> None:
    price()
    cap("0.25")
    model = PaidModel("four", output_tokens=10, max_tokens=20)
    run = lab.run(asks(model, times=2))

    run = lab.later(run)  # the window has not turned, only the wait is over

    assert run.status == "waiting"
    assert [wait.status for wait in Wait.objects.filter(run=run).order_by("id")] == ["done", "open"]
    Budget.objects.update(counts_since="2020-01-01T00:00Z")
    BudgetWindow.objects.update(starts_at="2020-01-01T00:00Z", ends_at="2020-01-02T00:00Z")
    run = lab.later(run)
    assert (run.status, model.requests) == ("succeeded", 2)
    assert sorted(BudgetWindow.objects.values_list("spent", flat=True)) == [Decimal("0.10"), Decimal("0.10")]


def test_a_claim_that_dies_over_a_request_has_spent_what_it_reserved(lab: Lab) -> None:
    price()
    cap("0.50")
    model = PaidModel("four", output_tokens=10, max_tokens=20)
    model.meanwhile = Died.once()

    run = lab.later(lab.run(asks(model), policy={"retries": 1}))

    assert (run.status, model.requests) == ("succeeded", 2)
    assert amounts() == (Decimal("0.30"), Decimal(0))


def test_the_dispatcher_settles_what_a_claim_that_is_over_had_reserved(lab: Lab) -> None:
    price()
    cap("0.50")
    model = PaidModel("four")
    model.meanwhile = Died.once()
    during: list[int] = []
    died = model.meanwhile

    def look_and_die() -> None:
        during.extend(id for id, _ in fetch(wake.LOST, {"most": 10}))
        died()

    model.meanwhile = look_and_die
    assert lab.run(asks(model)).status == "failed"
    assert (during, window().reserved) == ([], Decimal("0.20"))

    assert wake.settle_lost() == 1

    assert amounts() == (Decimal("0.20"), Decimal(0))


def test_a_request_that_the_provider_refused_costs_nothing(lab: Lab) -> None:
    price()
    cap("0.20")
    model = PaidModel(ModelHTTPError(status_code=400, model_name="paid"))

    run = lab.run(asks(model))

    assert (run.status, model.requests) == ("queued", 1)
    assert amounts() == (Decimal(0), Decimal(0))


def test_a_request_that_may_have_been_charged_counts_as_it_was_reserved(lab: Lab) -> None:
    price()
    cap("0.20")
    model = PaidModel(ModelHTTPError(status_code=504, model_name="paid"))

    run = lab.run(asks(model), policy={"retries": 0})
    run = lab.later(run)

    assert run.status == "waiting"
    assert (*amounts(), model.requests) == (Decimal("0.20"), Decimal(0), 1)


def of_both(first: PaidModel, second: PaidModel) -> Any:
    """Asks two models, one after the other fails. Each request may cost 20 cents."""
    price()
    price("second")
    llm = LlmAgent(FallbackModel(first.model, second.model), name="clerk", model_settings={"max_tokens": 20})
    return lambda run: run.llm(llm, "question").output


def test_a_model_that_may_have_charged_counts_beside_the_one_that_answers(lab: Lab) -> None:
    cap("1.00")
    second = PaidModel("four", name="second")
    during: list[tuple[Decimal, Decimal]] = []
    second.meanwhile = lambda: during.append(amounts())

    run = lab.run(of_both(PaidModel(ModelHTTPError(status_code=504, model_name="paid")), second))

    assert run.status == "succeeded"
    assert during == [(Decimal(0), Decimal("0.40"))]
    assert amounts() == (Decimal("0.40"), Decimal(0))


def test_a_model_that_refused_costs_nothing_beside_the_one_that_answers(lab: Lab) -> None:
    cap("1.00")

    refused = PaidModel(ModelHTTPError(status_code=429, model_name="paid"))
    run = lab.run(of_both(refused, PaidModel("four", name="second")))

    assert (run.status, *amounts()) == ("succeeded", Decimal("0.10"), Decimal(0))


def test_a_model_without_a_known_price_is_refused_under_a_cap_of_money(lab: Lab) -> None:
    cap("1.00")
    model = PaidModel("four", name="mystery")
    model.model._system = "nowhere"
    run = lab.run(asks(model))
    assert run.status == "succeeded"  # it runs here, so it is free

    from agents.llm import prices

    lab.monkeypatch.setattr(prices, "is_free", lambda model: False)
    run = lab.run(asks(model))
    assert run.status == "failed"
    assert "the price of model 'mystery' is not known" in run.error
    assert model.requests == 1


def test_an_unknown_price_may_be_allowed(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_UNPRICED = "allow"
    cap("1.00")
    model = PaidModel("four", name="mystery")
    from agents.llm import prices

    lab.monkeypatch.setattr(prices, "is_free", lambda model: False)

    assert lab.run(asks(model)).status == "succeeded"


def test_a_cap_of_each_run_is_raised_for_one_run(lab: Lab) -> None:
    price()
    budget = cap("0.25", period="run")
    model = PaidModel("four", output_tokens=10, max_tokens=20)
    first, second = (lab.run(asks(model, times=2)) for _ in range(2))
    assert (first.status, second.status) == ("waiting", "waiting")
    assert Wait.objects.filter(due_at=None).count() == 2  # no window of theirs ever turns

    allow_more(budget.pk, Decimal("0.05"), by="test", run_id=first.id)

    assert (lab.go_on(first).status, lab.go_on(second).status) == ("succeeded", "waiting")


def test_a_run_fails_at_a_cap_that_says_so(lab: Lab) -> None:
    price()
    cap("0.25", at_cap="fail")

    run = lab.run(asks(PaidModel("four"), times=2))

    assert run.status == "failed"
    assert "budget of all runs: $0.25 a day" in run.error


def test_tokens_requests_and_tool_calls_are_capped_too(lab: Lab) -> None:
    model = PaidModel([("look", {}, "a")], "done", output_tokens=10)
    called = []

    def body(run: AgentRun) -> str:
        llm = model.agent()

        @llm.tool_plain
        def look() -> str:
            called.append(1)
            return "seen"

        return str(run.llm(llm, "look").output)

    calls = cap("0", measure="tool_calls", period="run")
    run = lab.run(body)
    assert (run.status, called) == ("waiting", [])
    requests = cap("1", measure="requests")
    set_cap(calls.pk, Decimal(1), by="test")
    run = lab.go_on(run)
    assert (run.status, called, model.requests) == ("waiting", [1], 1)
    tokens = cap("115", measure="tokens", scope="agent", name="durable")
    set_cap(requests.pk, Decimal(2), by="test")
    run = lab.go_on(run)
    assert run.status == "waiting"  # a cap that comes later counts what was used before: 110 tokens
    set_cap(tokens.pk, Decimal(100_000), by="test")
    run = lab.go_on(run)

    assert (run.status, called, model.requests) == ("succeeded", [1], 2)
    spent = dict(BudgetWindow.objects.values_list("budget__measure", "spent"))
    assert spent == {"tool_calls": 1, "requests": 2, "tokens": 220}


def test_a_request_under_a_cap_is_bounded_and_one_without_is_not(lab: Lab) -> None:
    model = PaidModel("four", max_tokens=0)
    lab.run(asks(model))
    price()
    cap("1000")
    lab.run(asks(model))

    assert model.bounds == [None, 8192]


def test_what_does_not_say_what_it_used_counts_as_it_was_reserved(lab: Lab) -> None:
    price()
    cap("1.00")
    model = PaidModel("four", max_tokens=20)
    from agents.llm import prices, usage

    for module in (prices, usage):
        lab.monkeypatch.setattr(module, "is_measured", lambda response: False)

    lab.run(asks(model))

    assert window().spent == Decimal("0.20")
    assert Step.objects.get(kind="model", usage__cost=None)


def test_room_that_a_step_leaves_wakes_those_that_wait_for_it(lab: Lab) -> None:
    price()
    cap("0.30")
    model = PaidModel("four", output_tokens=10, max_tokens=20)
    lab.run(asks(model))
    BudgetWindow.objects.update(spent=0, reserved=Decimal("0.20"))  # a step of another worker is under way
    waiting = lab.run(asks(model))
    assert waiting.status_reason.endswith("$0.20 reserved by steps under way, and the next step may cost $0.20")
    BudgetWindow.objects.update(reserved=0)

    lab.run(asks(model))

    waiting.refresh_from_db()
    assert waiting.status == "succeeded"


def test_a_cap_that_is_raised_while_a_run_begins_to_wait_is_not_missed(lab: Lab) -> None:
    price()
    budget = cap("0.10")
    record = executor.record

    def raise_cap_and_record(claim: Claim, outcome: Outcome) -> None:
        set_cap(budget.pk, Decimal(1), by="test")  # which finds no wait yet
        record(claim, outcome)

    lab.monkeypatch.setattr(executor, "record", raise_cap_and_record)

    assert lab.run(asks(PaidModel("four"))).status == "succeeded"


def test_a_run_without_any_cap_makes_no_window(lab: Lab) -> None:
    price()

    assert lab.run(asks(PaidModel("four"))).status == "succeeded"
    assert not BudgetWindow.objects.exists()


class Died(BaseException):
    """The process died here."""

    @classmethod
    def once(cls) -> Any:
        left = [cls()]

        def die() -> None:
            if left:
                raise left.pop()

        return die
