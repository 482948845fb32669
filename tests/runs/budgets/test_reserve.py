"""What a model request may cost is reserved right before it, and settled right after it."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import RunContext
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage

from agents import AgentRun, AsyncAgentRun, Permanent
from agents.models import Session
from runs import executor
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.budgets import reserve, wake
from runs.budgets.caps import allow_more, create_budget, delete_budget, set_cap, set_price
from runs.budgets.spending import spent_today
from runs.claim import Claim
from runs.db.session import READ_WRITE, writing
from runs.db.sql import database_now, execute, fetch
from runs.models import AgentStop, Attempt, Budget, BudgetWindow, Reservation, Run, Step, Wait
from runs.transitions.outcome import Outcome
from tests.support.conversing import Listener, make_session
from tests.support.durable import Lab, lab, record_with
from tests.support.paid import PaidModel, price
from tests.support.runs import make_run
from tests.support.stack import eventually
from tests.support.triggers import make_event
from tests.support.wire import Wire

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]
A_TEST = timedelta(seconds=20)


@pytest.fixture(autouse=True)
def one_day(db: None) -> None:
    """The windows of a day end at midnight UTC: no test begins shortly before it."""
    tomorrow = database_now().astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
    if (left := tomorrow - database_now()) < A_TEST:
        time.sleep(left.total_seconds() + 0.1)


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


def test_a_run_waits_again_without_room_and_goes_on_when_the_window_turns(lab: Lab) -> None:
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
    assert amounts() == (Decimal("0.10"), Decimal("0.20"))
    wake.settle_lost()
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


@pytest.mark.parametrize(
    "turn, spent", [("four", "0.10"), (ModelHTTPError(status_code=400, model_name="paid"), "0")], ids=["answer", "400"]
)
def test_a_request_that_may_be_made_once_is_spent_like_any_other(lab: Lab, turn: Any, spent: str) -> None:
    price()
    cap("1.00")
    model = PaidModel(turn, output_tokens=10, max_tokens=20)
    during: list[tuple[Decimal, Decimal]] = []
    model.meanwhile = lambda: during.append(amounts())

    lab.run(lambda run: run.llm(model.agent(), "question", llm_in_flight="park").output)

    assert during == [(Decimal(0), Decimal("0.20"))]
    assert amounts() == (Decimal(spent), Decimal(0))
    assert not Reservation.objects.exists()


def test_a_request_that_may_be_made_once_and_waits_for_room_has_not_begun(lab: Lab) -> None:
    price()
    budget = cap("0.10")
    model = PaidModel("four")
    run = lab.run(lambda run: run.llm(model.agent(), "question", llm_in_flight="park").output)
    assert (run.status, model.requests, Step.objects.filter(kind="model").count()) == ("waiting", 0, 0)

    set_cap(budget.pk, Decimal(1), by="test")

    assert (lab.go_on(run).status, model.requests) == ("succeeded", 1)


@pytest.mark.parametrize("in_flight", ["repeat", "park"])
def test_a_request_for_which_is_reserved_is_sent_also_if_the_agent_is_stopped_then(lab: Lab, in_flight: Any) -> None:
    price()
    cap("1.00")
    model = PaidModel("four", output_tokens=10, max_tokens=20)

    def stop(point: str) -> None:
        if point == "after_reserve":
            with writing():
                AgentStop.objects.create(agent="durable", stopped_by="test")

    lab.monkeypatch.setattr(reserve, "failpoint", stop)

    def body(run: AgentRun) -> Any:
        run.now()  # its commit goes before the request
        return run.llm(model.agent(), "question", llm_in_flight=in_flight).output

    run = lab.run(body)

    assert (run.status, model.requests) == ("queued", 1)
    assert amounts() == (Decimal("0.10"), Decimal(0))


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

    from agents.llm.costs import prices

    lab.monkeypatch.setattr(prices, "is_free", lambda model: False)
    run = lab.run(asks(model))
    assert run.status == "failed"
    assert "the price of model 'mystery' is not known" in run.error
    assert model.requests == 1


def test_an_unknown_price_may_be_allowed(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_UNPRICED = "allow"
    cap("1.00")
    model = PaidModel("four", name="mystery")
    from agents.llm.costs import prices

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


def test_a_run_fails_with_the_text_of_the_cap_that_stopped_it(lab: Lab) -> None:
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


@pytest.mark.parametrize("is_late", [False, True])
def test_a_spawned_run_spends_the_budget_of_the_trigger_with_which_the_spawning_began(lab: Lab, is_late: bool) -> None:
    price()
    model = PaidModel("four", output_tokens=10, max_tokens=20)
    lab.declare(asks(model), name="grandchild")
    lab.declare(
        lambda run: run.gather(*[run.spawn("grandchild", key=str(number)) for number in range(2)]), name="child"
    )

    def make_cap() -> Budget:
        return cap("0.30", scope="trigger", name="durable")

    budget = None if is_late else make_cap()
    run = lab.run(lambda run: run.gather(run.spawn("child")))

    if budget is None:
        allow_more(make_cap().pk, Decimal(1), by="test")
        assert (run.status, model.requests, window().spent) == ("succeeded", 2, Decimal("0.20"))
    else:
        assert (run.status, model.requests, window().spent) == ("succeeded", 2, Decimal("0.20"))
        run = lab.run(lambda run: run.gather(run.spawn("child")))
        assert (run.status, model.requests) == ("waiting", 2)
        wake.Round().chore()
        assert lab.go_on(run).status == "waiting"
        set_cap(budget.pk, Decimal(1), by="test")
        assert (lab.go_on(run).status, model.requests) == ("succeeded", 4)


def test_a_request_under_a_cap_is_bounded_and_one_without_is_not(lab: Lab) -> None:
    model = PaidModel("four", max_tokens=0)
    lab.run(asks(model))
    price()
    cap("1000")
    lab.run(asks(model))

    assert model.bounds == [None, 8192]


@pytest.mark.filterwarnings("ignore:The model:DeprecationWarning")  # it thinks by a number of tokens
@pytest.mark.parametrize(
    "thinking", [{"thinking": "high"}, {"anthropic_thinking": {"type": "enabled", "budget_tokens": 16384}}]
)
def test_the_bound_of_a_request_that_thinks_leaves_room_for_its_answer(lab: Lab, wire: Wire, thinking: Any) -> None:
    cap("1000000", measure="tokens")
    wire.script("s", "hello")
    llm = LlmAgent("anthropic:claude-sonnet-4-5", name="clerk", model_settings=thinking)

    run = lab.run(lambda run: run.llm(llm, wire.prompt("s", "x")).output)

    assert run.status == "succeeded"
    sent = wire.requests[-1].body
    assert (sent["thinking"]["budget_tokens"], sent["max_tokens"]) == (16384, 16384 + 4096)


def test_turns_are_dropped_whose_summary_costs_more_than_a_cap_that_lets_runs_wait(lab: Lab) -> None:
    make_session(most_turns=1, overflow="summarise")
    listener = Listener()
    lab.run(
        lambda run: [run.llm(listener.agent(), f"> {part}", session="ops").output for part in ("x" * 20_000, "two")]
    )
    cap("9000", measure="tokens", period="run")
    listener.requests.clear()

    run = lab.run(
        lambda run: run.llm(listener.agent(), "> three", session="ops", model_settings={"max_tokens": 100}).output
    )

    assert (run.status, listener.requests) == ("succeeded", [["> > two", "re: > two", "> > three"]])
    assert Session.objects.get().run_id is None


def test_a_response_without_usage_counts_as_it_was_reserved(lab: Lab) -> None:
    price()
    cap("1.00")
    model = PaidModel("four", max_tokens=20)
    from agents.llm.costs import prices, usage

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

    record_with(lab.monkeypatch, raise_cap_and_record)

    assert lab.run(asks(PaidModel("four"))).status == "succeeded"


def test_a_run_without_any_cap_makes_no_window(lab: Lab) -> None:
    price()

    assert lab.run(asks(PaidModel("four"))).status == "succeeded"
    assert not BudgetWindow.objects.exists()


def test_an_answer_that_cannot_be_recorded_counts_in_a_cap_that_comes_later(lab: Lab) -> None:
    price()
    too_deep: dict[str, Any] = {}
    for _ in range(200):
        too_deep = {"deeper": too_deep}
    run = lab.run(asks(PaidModel([("look_up", too_deep)])))
    assert run.status == "failed"

    allow_more(cap("1.00").pk, Decimal(1), by="test")

    assert amounts() == (Decimal("0.10"), Decimal(0))
    assert [(spent.requests, spent.usd) for spent in spent_today()] == [(1, Decimal("0.10"))]


def test_a_call_of_a_tool_that_failed_counts_in_a_cap_that_comes_later(lab: Lab) -> None:
    def body(run: AgentRun) -> str:
        llm = PaidModel([("look", {}, "a")], "done").agent()

        @llm.tool_plain
        def look() -> str:
            raise Permanent("no")

        return str(run.llm(llm, "look").output)

    lab.run(body)

    allow_more(cap("5", measure="tool_calls").pk, Decimal(1), by="test")

    assert amounts() == (Decimal(1), Decimal(0))


def test_steps_that_list_tools_do_not_count_in_a_later_cap_of_tool_calls(lab: Lab) -> None:
    def body(run: AgentRun) -> str:
        llm = PaidModel([("look", {}, "a")], "done").agent()

        @llm.toolset(id="made-for-the-run")
        def toolset(ctx: RunContext[None]) -> FunctionToolset[None]:
            return FunctionToolset([look], id="lookers")

        return str(run.llm(llm, "look").output)

    def look() -> str:
        return "seen"

    run = lab.run(body)
    assert Step.objects.filter(run=run, kind="tool").count() > 1  # it listed the tools as well

    allow_more(cap("5", measure="tool_calls").pk, Decimal(1), by="test")

    assert (run.status, *amounts()) == ("succeeded", Decimal(1), Decimal(0))


def test_an_answer_that_is_too_large_is_paid_once_until_a_person_forks_the_run(lab: Lab, settings: Any) -> None:
    price()
    cap("1.00")
    settings.WAKEFUL_MAX_OUTPUT = 2_000
    model = PaidModel("x" * 3_000)

    run = lab.run(asks(model), policy={"retries": 3})
    step = Step.objects.get(run=run, kind="model")

    assert (run.status, step.status, model.requests) == ("failed", "failed", 1)
    assert step.usage is not None and Decimal(step.usage["cost"]) == Decimal("0.10")
    assert "The answer is paid and lost" in run.error

    settings.WAKEFUL_MAX_OUTPUT = 10_000
    run = lab.go_on(requeue(run.pk, by="test"))

    assert (run.status, model.requests) == ("failed", 1)
    assert "The answer is paid and lost" in run.error

    model.turns = ("four",)
    forked = lab.go_on(fork(run.pk, by="test", step=step.key))

    assert (forked.status, forked.result, model.requests) == ("succeeded", ["four"], 2)
    assert amounts() == (Decimal("0.20"), Decimal(0))


@pytest.mark.parametrize("change", ["delete", "empty"])
def test_an_answer_is_recorded_while_its_budget_is_deleted(lab: Lab, change: str) -> None:
    """The answer waits for a lock of its window, then the operator does; neither holds what the other needs next."""
    price()
    budget = cap("1.00")
    done: list[str] = []

    def take_away() -> None:
        with as_another_process():
            if change == "delete":
                delete_budget(budget.pk, by="test")
            else:
                set_cap(budget.pk, Decimal(2), by="test")
            done.append(change)

    def hold_window() -> None:
        with as_another_process():
            if change == "empty":  # then it applies again, which makes its windows new
                set_cap(budget.pk, None, by="test")
            with transaction.atomic():
                BudgetWindow.objects.select_for_update().get()
                is_held.set()
                eventually(lambda: blocked() == 1, timeout=20)
                operator.start()
                eventually(lambda: blocked() == 2, timeout=20)

    is_held = threading.Event()
    holder, operator = threading.Thread(target=hold_window), threading.Thread(target=take_away)

    def answering() -> None:
        holder.start()
        assert is_held.wait(60)

    model = PaidModel("four")
    model.meanwhile = answering
    run = lab.run(asks(model))
    holder.join()
    operator.join()

    assert (run.status, model.requests, done) == ("succeeded", 1, [change])
    assert list(Attempt.objects.values_list("outcome", flat=True)) == ["succeeded"]
    assert not Reservation.objects.exists()


@contextmanager
def as_another_process() -> Iterator[None]:
    """The session of a thread, which does not belong to the body that runs in this process."""
    execute(READ_WRITE)
    try:
        yield
    finally:
        connection.close()


def blocked() -> int:
    """Sessions of this database that wait for a lock, as of now: a transaction sees the activity of its first look again."""
    fetch("SELECT pg_stat_clear_snapshot()")
    [(count,)] = fetch(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    )
    return int(count)


@pytest.mark.parametrize("period", ["run", "day"])
def test_a_run_fails_at_its_cap_also_if_a_step_under_way_used_the_rest_of_it(lab: Lab, period: str) -> None:
    price()
    cap("0.30", at_cap="fail", period=period)
    model = PaidModel("four", output_tokens=20)

    async def body(run: AsyncAgentRun) -> list[str]:
        first, second = (run.llm(model.agent(), "question", key=key) for key in "ab")
        return [answer.output for answer in await asyncio.gather(first, second)]

    run = lab.run(body)
    wake.Round().chore()

    assert (lab.go_on(run).status, model.requests) == ("failed", 1)
    assert "budget of all runs: $0.30" in run.error


def test_runs_go_on_however_many_older_ones_wait_for_another_budget(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    price()
    model = PaidModel("four")
    budgets = {name: cap("0", scope="agent", name=name) for name in ("one", "other")}
    runs: list[Run] = []
    for name in ("one", "one", "one", "other"):
        lab.declare(asks(model), name=name)
        runs.append(
            make_run(agent=name, event_id=make_event(data=None).id, trigger=f"t{len(runs)}", policy={"durable": True})
        )
    lab.go_on(runs[0])
    monkeypatch.setattr(wake, "PAGE", 3)
    monkeypatch.setattr(wake, "LOOK", 0.0)
    going_round = wake.Round()

    set_cap(budgets["other"].pk, Decimal(1), by="test")
    assert [going_round.chore() for _ in range(3)] == [0, 1, 0]

    assert lab.go_on(runs[3]).status == "succeeded"
    assert lab.go_on(runs[0]).status == "waiting"


def test_a_look_with_enough_time_reads_all_waits(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """And gives the room that there is away once."""
    price()
    budget = cap("0")
    for _ in range(4):
        lab.run(asks(PaidModel("four")))
    monkeypatch.setattr(wake, "PAGE", 1)
    monkeypatch.setattr(wake, "LOOK", 600.0)
    Budget.objects.filter(pk=budget.pk).update(cap=Decimal("0.60"))

    assert wake.wake_waiting() == 3


def test_a_run_whose_model_has_a_lower_price_now_goes_on(lab: Lab) -> None:
    price()
    cap("0.10")
    run = lab.run(asks(PaidModel("four")))
    assert run.status == "waiting"

    set_price(model="another", input=Decimal(0), output=Decimal(1), by="test")
    assert lab.go_on(run).status == "waiting"
    assert Wait.objects.filter(run=run).count() == 1
    set_price(model="paid", input=Decimal(0), output=Decimal(1), by="test")

    assert lab.go_on(run).status == "succeeded"


def test_a_request_without_a_price_waits_once_while_its_budget_is_overspent(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_UNPRICED = "allow"
    from agents.llm.costs import prices

    lab.monkeypatch.setattr(prices, "is_free", lambda model: False)
    budget = cap("1.00")
    allow_more(budget.pk, Decimal(1), by="test")
    BudgetWindow.objects.update(spent=5)

    run = lab.run(asks(PaidModel("four", name="mystery")))

    assert run.status == "waiting"
    assert Wait.objects.filter(run=run).count() == 1


@pytest.mark.parametrize("amount", ["1e12", "1e30", "1e-12", "NaN", "-1"])
def test_an_amount_that_cannot_be_kept_is_refused(amount: str) -> None:
    budget = cap("1.00")

    with pytest.raises(ValueError, match="an amount from 0 to a trillion with at most 10 decimal places"):
        set_cap(budget.pk, Decimal(amount), by="test")
    with pytest.raises(ValueError, match="an amount from 0 to a trillion with at most 10 decimal places"):
        allow_more(budget.pk, Decimal(amount), by="test")


def test_more_on_top_of_a_cap_than_can_be_kept_is_refused() -> None:
    budget = cap("999999999999.9")
    for _ in range(10):
        allow_more(budget.pk, Decimal("999999999999.9999999999"), by="test")

    with pytest.raises(ValueError, match="allows less than 10,000,000,000,000 on top of its cap"):
        allow_more(budget.pk, Decimal("999999999999"), by="test")


class Died(BaseException):
    """The process died here."""

    @classmethod
    def once(cls) -> Any:
        left = [cls()]

        def die() -> None:
            if left:
                raise left.pop()

        return die


class Counting(PaidModel):
    """Counts a token of input for four letters."""

    def _answer(self, messages: list[ModelMessage], info: Any) -> ModelResponse:
        response = super()._answer(messages, info)
        letters = sum(len(str(getattr(part, "content", ""))) for message in messages for part in message.parts)
        return replace(response, usage=RequestUsage(input_tokens=letters // 4, output_tokens=10))


def test_a_system_prompt_before_an_earlier_answer_of_a_session_is_reserved(lab: Lab) -> None:
    cap("20000", measure="tokens", period="run")
    model = Counting("one", "two")
    small = LlmAgent(model.model, name="small")
    big = LlmAgent(model.model, name="big", system_prompt="x" * 400_000)

    lab.run(lambda run: run.llm(small, "hello", session="ops").output)
    run = lab.run(lambda run: run.llm(big, "hello", session="ops").output)

    assert (run.status, model.requests) == ("waiting", 1)


def test_messages_that_a_history_processor_puts_before_an_earlier_answer_are_reserved(lab: Lab) -> None:
    cap("20000", measure="tokens", period="run")
    model = Counting([("look", {}, "call-1")], "done")

    def grows(messages: list[ModelMessage]) -> list[ModelMessage]:
        if len(messages) < 3:
            return messages
        return [ModelRequest(parts=[UserPromptPart("y" * 400_000)]), *messages]

    llm = LlmAgent(model.model, name="clerk", capabilities=[ProcessHistory(grows)])

    @llm.tool_plain
    def look() -> str:
        return "seen"

    run = lab.run(lambda run: run.llm(llm, "hi hello there").output)

    assert (run.status, model.requests) == ("waiting", 1)


def test_a_counted_conversation_reserves_only_what_a_tool_adds(lab: Lab) -> None:
    cap("30000", measure="tokens", period="run")
    model = Counting([("look", {}, "call-1")], "done")
    llm = LlmAgent(model.model, name="clerk")
    during: list[Decimal] = []
    model.meanwhile = lambda: during.append(amounts()[1])

    @llm.tool_plain
    def look() -> str:
        return "seen"

    run = lab.run(lambda run: run.llm(llm, "word " * 2_000).output)

    assert run.status == "succeeded"
    assert during[0] > 10_000 > 6_000 > during[1] > 2_500


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("given", [5000, "many"])
def test_an_extra_body_that_takes_off_the_bound_is_refused_under_a_cap(lab: Lab, name: str, given: Any) -> None:
    cap("100000", measure="tokens")
    model = PaidModel("done")
    more: Any = {"extra_body": {name: given}, "max_tokens": 10}

    run = lab.run(lambda run: run.llm(model.agent(), "q", model_settings=more).output)

    assert (run.status, model.requests) == ("failed", 0)
    assert f"extra_body of the model settings has {name}" in run.error
    assert not Reservation.objects.exists()
