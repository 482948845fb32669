"""A request that a run left: who may take it, and whose answer counts."""

import json
import logging
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import Tool
from pytest_django import Settings

from agents import AgentRun
from agents.journal import spending
from agents.journal.budget import Cost, NoRoom
from agents.kernel.redaction import know
from agents.llm.requests.left import Answered
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.budgets import wake
from runs.budgets.caps import create_budget, set_cap
from runs.calls import rows
from runs.calls.caller import Ended, record_late
from runs.calls.payer import CallPayer
from runs.calls.rows import Call, Outcome
from runs.db.sql import execute, fetch
from runs.durable.progress import record_late_answer
from runs.models import BudgetWindow, ModelCall, Queue, Run, Step, Wait, Worker
from runs.processes.rescue import close_unseen
from tests.support.durable import Lab, lab
from tests.support.runs import make_run
from tests.support.stack import eventually
from tests.support.wire import Call as Asks
from tests.support.wire import Wire

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

llm = LlmAgent(name="thinker")


@pytest.fixture(autouse=True)
def model(settings: Settings, wire: Wire) -> None:
    settings.WAKEFUL_MODEL = "openai-chat:gpt-4o"
    wire.script("talk", "done")


@pytest.fixture
def caller() -> UUID:
    return Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=2, version="1").id


@pytest.fixture
def server_has_run_for_a_lease(settings: Settings) -> None:
    """Before that no process is judged by its lease."""
    age = "SELECT clock_timestamp() - pg_postmaster_start_time() > %s::interval"
    eventually(lambda: fetch(age, [settings.WAKEFUL_LEASE])[0][0])


def other_run_is_ready() -> None:
    make_run(trigger="of-another-worker")


def add(number: int) -> int:
    return number + 1


def think(run: AgentRun) -> str:
    return str(run.llm(llm, f"[script talk {run.id}]").output)


def left(lab: Lab, **fields: Any) -> Run:
    """A run that has left its request."""
    other_run_is_ready()
    run = lab.run(think, **fields)
    assert run.status == "waiting"
    return run


def taken(caller: UUID) -> Call:
    [call] = rows.take(caller, 10)
    return call


def said(call: Call, text: str = "done") -> Outcome:
    part = {"part_kind": "text", "content": text}
    answer = {
        "kind": "response",
        "parts": [part],
        "usage": {},
        "model_name": "gpt-4o",
        "timestamp": "2026-01-01T00:00:00Z",
    }
    output = {"prompt": json.loads(call.content)["prompt"], "answer": answer}
    usage = {"model": "gpt-4o", "provider": "openai", "input_tokens": 1, "output_tokens": 1, "cost": "0.1"}
    return Outcome(wait_id=call.wait_id, took=1.0, usage=usage, output=json.dumps(output))


def test_an_answer_is_the_step_of_the_run_and_wakes_it(lab: Lab, caller: UUID, wire: Wire) -> None:
    run = left(lab)
    call = taken(caller)

    assert rows.answer(caller, [said(call, "said")]) == {call.wait_id}

    assert lab.go_on(run).result == "said"
    assert not wire.requests and not ModelCall.objects.exists()
    step = Step.objects.get(run=run, kind="model")
    assert (step.status, step.effect, step.usage["cost"]) == ("done", "idempotent", "0.1")  # type: ignore[index]
    assert step.arguments[0]["parts"]  # type: ignore[index]  # the transcript has the prompt


def test_a_lone_run_and_one_without_a_caller_make_their_request(lab: Lab, wire: Wire) -> None:
    other_run_is_ready()
    assert lab.run(think).result == "done"  # no caller
    Run.objects.filter(trigger="of-another-worker").delete()
    Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=2, version="1")
    assert lab.run(think).result == "done"  # nothing else is ready
    assert not Wait.objects.exists() and len(wire.requests) == 2


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_a_caller_that_was_killed_while_it_rested_is_left_nothing(
    lab: Lab, caller: UUID, wire: Wire, settings: Settings
) -> None:
    """Its row does not expire for a while, but no session holds its lock."""
    unseen = 2 * settings.WAKEFUL_LEASE_RENEW
    Worker.objects.filter(id=caller).update(seen_at=Now() - unseen, expires_at=Now() + 10 * settings.WAKEFUL_LEASE)
    other_run_is_ready()

    assert lab.run(think).result == "done"
    assert not Wait.objects.exists() and len(wire.requests) == 1


def test_a_long_run_makes_its_further_requests_itself(
    lab: Lab, caller: UUID, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spending, "REPLAYED_AT_MOST", 2)  # the opening of the call, and its first request
    wire.script("long", *[[Asks("add", number=number)] for number in range(4)], "done")
    adder = LlmAgent(name="adder", tools=[Tool(add, metadata={"effect": "read", "trusted": True})])
    other_run_is_ready()
    run = lab.run(lambda run: run.llm(adder, f"[script long {run.id}]").output)
    assert rows.hand_back(caller, [taken(caller).wait_id])

    assert lab.go_on(run).result == "done"
    assert wire.asked(run.id) == dict.fromkeys(range(5), 1)
    assert Wait.objects.count() == 1


def test_a_queue_with_a_limit_keeps_its_requests(lab: Lab, caller: UUID) -> None:
    Queue.objects.create(name="default", max_running=5)
    other_run_is_ready()
    assert lab.run(think).result == "done"
    assert not Wait.objects.exists()


def test_requests_that_need_this_process_are_not_left(lab: Lab, caller: UUID) -> None:
    other_run_is_ready()

    async def handler(ctx: Any, events: Any) -> None:
        async for _ in events:
            pass

    for options in (
        {"event_stream_handler": handler},
        {"timeout": 60.0},
        {"model_settings": {"extra_headers": {"x-key": "secret"}}},
    ):
        run = lab.run(lambda run, options=options: run.llm(llm, f"[script talk {run.id}]", **options).output)
        assert run.result == "done", options
    assert not Wait.objects.exists()


def ask_once(run: AgentRun) -> str:
    return str(run.llm(llm, f"[script talk {run.id}]", llm_in_flight="park").output)


@pytest.fixture
def left_once(lab: Lab, caller: UUID) -> Run:
    """A run that has left a request which may be made only once."""
    other_run_is_ready()
    run = lab.run(ask_once)
    assert run.status == "waiting" and not Step.objects.filter(kind="model").exists()
    return run


def test_a_request_that_may_be_made_once_has_begun_when_it_is_taken(lab: Lab, left_once: Run, caller: UUID) -> None:
    call = taken(caller)
    step = Step.objects.get(kind="model")
    assert (step.status, step.effect) == ("started", "at_most_once") and step.arguments

    assert rows.answer(caller, [said(call, "said")]) == {call.wait_id}

    assert lab.go_on(left_once).result == "said"


def test_tries_that_were_certainly_not_worked_on_are_no_attempts_of_a_request_that_may_be_made_once(
    lab: Lab, left_once: Run, caller: UUID
) -> None:
    """`verify` holds that such a step has one attempt."""
    assert rows.postpone(caller, taken(caller).wait_id, 0.0, "busy")
    taken(caller)
    rows.untake(caller, made=[])

    call = taken(caller)
    assert Step.objects.get(kind="model").attempts == 1
    assert rows.answer(caller, [said(call)])

    step = Step.objects.get(kind="model")
    assert (step.effect, step.status, step.attempts) == ("at_most_once", "done", 1)


def test_a_request_that_may_be_made_once_and_is_taken_twice_has_two_attempts(
    lab: Lab, left_once: Run, caller: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So `verify` notices a caller that makes it again."""
    taken(caller)
    ModelCall.objects.update(owner_id=None)
    guard = "AND status = 'started'"
    assert guard in rows.TAKE
    monkeypatch.setattr(rows, "TAKE", rows.TAKE.replace(guard, "AND false"))

    rows.answer(caller, [said(taken(caller))])

    assert Step.objects.get(kind="model").attempts == 2


def test_tries_of_a_request_that_may_be_repeated_are_its_attempts(lab: Lab, caller: UUID) -> None:
    left(lab)
    assert rows.postpone(caller, taken(caller).wait_id, 0.0, "busy")

    rows.answer(caller, [said(taken(caller))])

    assert Step.objects.get(kind="model").attempts == 2


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_a_lost_request_that_may_be_made_once_is_parked_and_its_late_answer_lets_it_go_on(
    lab: Lab, left_once: Run, caller: UUID, wire: Wire, settings: Settings
) -> None:
    late = taken(caller)
    Worker.objects.filter(id=caller).update(seen_at=Now() - 2 * settings.WAKEFUL_LEASE, expires_at=Now())
    second = Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=3, version="1").id
    close_unseen()
    rows.tidy()

    assert rows.take(second, 10) == []
    assert lab.go_on(left_once).status == "uncertain"
    assert rows.answer(caller, [said(late, "late")]) == set()
    answer = Answered(output=json.loads(said(late, "late").output or ""), usage=said(late).usage)
    record_late(Ended(call=late, end=answer, took=1.0), record_late_answer)

    assert lab.go_on(left_once).result == "late"
    assert Step.objects.get(kind="model").usage["cost"] == "0.1"  # type: ignore[index]
    assert not wire.requests


def test_a_stopping_caller_leaves_to_a_person_what_may_be_made_once(
    lab: Lab, left_once: Run, caller: UUID, wire: Wire
) -> None:
    rows.let_go(caller, [taken(caller).wait_id])
    assert lab.go_on(left_once).status == "uncertain"
    assert not ModelCall.objects.exists() and not wire.requests


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_without_a_live_caller_what_was_taken_once_is_parked(
    lab: Lab, left_once: Run, caller: UUID, wire: Wire, settings: Settings
) -> None:
    taken(caller)
    ModelCall.objects.update(created_at=F("created_at") - 2 * settings.WAKEFUL_LEASE)
    Worker.objects.filter(id=caller).update(stopped_at=Now())

    assert rows.hand_back_abandoned() == 1
    assert lab.go_on(left_once).status == "uncertain"
    assert not wire.requests


def test_a_request_that_was_certainly_not_worked_on_may_be_made_again(
    lab: Lab, left_once: Run, caller: UUID, wire: Wire
) -> None:
    assert rows.postpone(caller, taken(caller).wait_id, 0.0, "busy")
    assert not Step.objects.filter(kind="model").exists()
    call = taken(caller)
    assert Step.objects.get(kind="model").status == "started"

    assert rows.hand_back(caller, [call.wait_id], unmade=[call.wait_id])

    assert lab.go_on(left_once).result == "done"
    assert wire.asked(left_once.id) == {0: 1}


def nodes_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes_of(part)


def test_a_look_for_requests_reads_no_runs_that_wait_for_something_else(lab: Lab, caller: UUID) -> None:
    """Joined the other way round, each look of a caller read all open waits with all waiting runs."""
    left(lab)
    with transaction.atomic():
        execute("SET LOCAL enable_seqscan = off")  # right for tables as small as these
        [(plan,)] = fetch(f"EXPLAIN (FORMAT JSON) {rows.TAKE}", {"me": caller, "most": 10})
    read = set(re.findall(r"'Index Name': '(\w+)'", str(plan)))
    assert not read & {"wait_one_open", "run_waiting"}, plan
    assert {"runs_wait", "runs_run"} <= {node.get("Relation Name") for node in nodes_of(plan[0]["Plan"])}
    for node in nodes_of(plan[0]["Plan"]):
        if node.get("Relation Name") in ("runs_wait", "runs_run"):
            assert "(id = " in node.get("Index Cond", node.get("Recheck Cond", "")), node


def test_each_request_has_one_owner(lab: Lab, caller: UUID) -> None:
    left(lab)
    second = Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=3, version="1").id

    call = taken(caller)

    assert rows.take(second, 10) == []
    assert rows.answer(second, [said(call)]) == set()
    assert rows.hand_back(second, [call.wait_id]) == set()
    assert not rows.postpone(second, call.wait_id, 1.0, "busy")
    assert not Step.objects.filter(kind="model").exists()


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_the_answer_of_a_caller_that_lost_its_lease_is_dropped(lab: Lab, caller: UUID, settings: Settings) -> None:
    run = left(lab)
    late = taken(caller)
    Worker.objects.filter(id=caller).update(seen_at=Now() - 2 * settings.WAKEFUL_LEASE, expires_at=Now())
    second = Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=3, version="1").id
    rows.tidy()
    assert rows.take(second, 10) == []  # its caller may only have been kept from renewing: the dispatcher knows
    close_unseen()
    rows.tidy()
    call = taken(second)

    assert rows.answer(caller, [said(late, "late")]) == set()
    assert rows.answer(second, [said(call, "said")]) == {call.wait_id}

    assert call.tries == 2
    assert lab.go_on(run).result == "said"


def test_an_answer_counts_once(lab: Lab, caller: UUID) -> None:
    run = left(lab)
    call = taken(caller)
    rows.answer(caller, [said(call, "said")])
    assert rows.answer(caller, [said(call, "again")]) == set()
    assert lab.go_on(run).result == "said"


def test_a_cancelled_run_takes_no_answer_and_a_requeue_asks_anew(lab: Lab, caller: UUID) -> None:
    run = left(lab)
    late = taken(caller)
    cancel(run.id, by="a test")

    assert rows.wanted(caller) == set()
    assert rows.answer(caller, [said(late, "late")]) == set()
    rows.tidy()
    assert not ModelCall.objects.exists()

    requeue(run.id, by="a test")
    assert lab.go_on(run).status == "waiting"
    assert rows.answer(caller, [said(taken(caller), "said")])
    assert lab.go_on(run).result == "said"


def test_what_is_handed_back_the_run_asks_itself(lab: Lab, caller: UUID, wire: Wire) -> None:
    run = left(lab)
    rows.hand_back(caller, [taken(caller).wait_id])

    assert lab.go_on(run).result == "done"
    assert wire.asked(run.id) == {0: 1}


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_without_a_live_caller_the_waits_end(lab: Lab, caller: UUID, wire: Wire, settings: Settings) -> None:
    run = left(lab)
    taken(caller)
    ModelCall.objects.update(created_at=F("created_at") - 2 * settings.WAKEFUL_LEASE)
    assert rows.hand_back_abandoned() == 0

    Worker.objects.filter(id=caller).update(stopped_at=Now())

    assert rows.hand_back_abandoned() == 1
    assert lab.go_on(run).result == "done"
    assert rows.hand_back_abandoned() == 0
    assert not ModelCall.objects.exists()


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_a_draining_caller_keeps_the_requests_that_it_makes(lab: Lab, caller: UUID, settings: Settings) -> None:
    left(lab)
    call = taken(caller)
    ModelCall.objects.update(created_at=F("created_at") - 2 * settings.WAKEFUL_LEASE)
    Worker.objects.filter(id=caller).update(draining_at=Now())

    assert rows.hand_back_abandoned() == 0
    assert rows.answer(caller, [said(call)]) == {call.wait_id}


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_what_a_draining_caller_lets_go_the_run_asks_itself(lab: Lab, caller: UUID, settings: Settings) -> None:
    left(lab)
    rows.let_go(caller, [taken(caller).wait_id])
    ModelCall.objects.update(created_at=F("created_at") - 2 * settings.WAKEFUL_LEASE)
    Worker.objects.filter(id=caller).update(draining_at=Now())

    assert rows.hand_back_abandoned() == 1


def no_caller_takes_it(settings: Settings) -> None:
    """Such as: each of them makes all that it can, or was killed."""
    long_ago = 2 * settings.WAKEFUL_LEASE
    ModelCall.objects.update(created_at=F("created_at") - long_ago)
    assert rows.hand_back_abandoned() == 0
    ModelCall.objects.update(due_at=F("due_at") - long_ago)
    assert rows.hand_back_abandoned() == 1


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_what_no_caller_takes_for_a_lease_is_left_again_to_one_that_lives(
    lab: Lab, caller: UUID, wire: Wire, settings: Settings
) -> None:
    """Hundreds of runs whose caller was away for a while would occupy the children for minutes."""
    run = left(lab)
    no_caller_takes_it(settings)

    assert lab.go_on(run).status == "waiting"
    assert rows.answer(caller, [said(taken(caller), "said")])
    assert lab.go_on(run).result == "said"
    assert not wire.requests


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_what_no_caller_takes_again_and_again_the_run_asks_itself(
    lab: Lab, caller: UUID, wire: Wire, settings: Settings
) -> None:
    run = left(lab)
    for _ in range(spending.LEFT_UNTAKEN_AT_MOST):
        assert run.status == "waiting"
        no_caller_takes_it(settings)
        run = lab.go_on(run)

    assert run.result == "done"
    assert wire.asked(run.id) == {0: 1}


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_room_and_no_caller_in_any_order_leave_a_request_again(lab: Lab, caller: UUID, settings: Settings) -> None:
    budget = create_budget(scope="installation", period="day", measure="requests", cap=Decimal(0), by="a test")
    run = left(lab)
    for cap in (1, 2):
        no_caller_takes_it(settings)
        assert lab.go_on(run).status == "waiting"
        call = taken(caller)
        rows.hand_back(caller, [call.wait_id], unmade=[call.wait_id])
        assert lab.go_on(run).status == "waiting" and Wait.objects.get(status="open").kind == "budget"
        set_cap(budget.pk, Decimal(cap), by="a test")
        other_run_is_ready()
        assert lab.go_on(run).status == "waiting"
        set_cap(budget.pk, Decimal(0), by="a test")

    assert rows.answer(caller, [said(taken(caller), "said")])
    assert lab.go_on(run).result == "said"


def test_children_log_once_that_no_caller_lives_and_that_one_is_back(
    lab: Lab, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_leaves", True)
    caplog.set_level(logging.INFO)
    other_run_is_ready()
    for _ in range(3):
        assert lab.run(think).result == "done"
    Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=2, version="1")
    for _ in range(3):
        assert lab.run(think).status == "waiting"

    logged = [str(record.msg) for record in caplog.records if record.name == rows.__name__]
    assert ["caller.missing" in logged[0], "caller.back" in logged[1], len(logged)] == [True, True, 2]


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_a_request_that_is_postponed_waits_for_its_provider(lab: Lab, caller: UUID, settings: Settings) -> None:
    left(lab)
    assert rows.postpone(caller, taken(caller).wait_id, 60.0, "busy")
    ModelCall.objects.update(created_at=F("created_at") - 2 * settings.WAKEFUL_LEASE)
    assert rows.hand_back_abandoned() == 0


def test_secrets_are_no_part_of_a_request_that_is_left(lab: Lab, caller: UUID) -> None:
    know("a-planted-secret-0123")
    other_run_is_ready()
    agent = LlmAgent(name="thinker", instructions="Say a-planted-secret-0123.")
    run = lab.run(lambda run: run.llm(agent, f"[script talk {run.id}] a-planted-secret-0123").output)
    assert run.status == "waiting"
    [call] = ModelCall.objects.all()
    assert "planted" not in json.dumps([call.content, call.step])


def test_a_postponed_request_is_taken_when_it_is_due(lab: Lab, caller: UUID) -> None:
    left(lab)
    call = taken(caller)
    assert rows.postpone(caller, call.wait_id, 60.0, "busy")

    assert rows.take(caller, 10) == []
    assert 50 < (rows.first_due()[1] or 0) <= 60
    ModelCall.objects.update(due_at=Now())
    assert taken(caller).tries == 2


def test_a_run_that_waits_for_a_model_keeps_its_place_of_its_key(lab: Lab, caller: UUID) -> None:
    run = left(lab, key="of-a-customer", slot=0)
    assert (run.slot, run.status) == (0, "waiting")


def test_an_answer_that_cannot_be_stored_fails_the_run_and_is_not_paid_again(
    lab: Lab, caller: UUID, wire: Wire
) -> None:
    run = left(lab)
    call = taken(caller)
    rows.answer(
        caller, [Outcome(wait_id=call.wait_id, took=1.0, usage={}, error="it is too large", error_kind="Permanent")]
    )

    run = lab.go_on(run)
    assert run.status == "failed" and "too large" in run.error
    assert not wire.requests


def test_a_request_without_room_is_left_again_once_there_is_room(lab: Lab, caller: UUID, wire: Wire) -> None:
    budget = create_budget(scope="installation", period="day", measure="requests", cap=Decimal(0), by="a test")
    run = left(lab)
    call = taken(caller)
    with pytest.raises(NoRoom):
        CallPayer(call, caller).reserve(lambda limits: Cost(requests=1))
    rows.hand_back(caller, [call.wait_id], unmade=[call.wait_id])
    assert lab.go_on(run).status == "waiting" and Wait.objects.get(status="open").kind == "budget"

    set_cap(budget.pk, Decimal(1), by="a test")
    other_run_is_ready()

    assert lab.go_on(run).status == "waiting"
    assert rows.answer(caller, [said(taken(caller), "said")])
    assert lab.go_on(run).result == "said"
    assert not wire.requests


def test_removing_a_wait_removes_its_request(lab: Lab, caller: UUID) -> None:
    left(lab)
    Wait.objects.all()._raw_delete("default")
    assert not ModelCall.objects.exists()


def test_a_caller_without_the_request_reserves_nothing(lab: Lab, caller: UUID) -> None:
    create_budget(scope="installation", period="day", measure="requests", cap=Decimal(1), by="a test")
    left(lab)
    call = taken(caller)
    cost = Cost(requests=1)

    reserved, _ = CallPayer(call, caller).reserve(lambda limits: cost)
    with pytest.raises(NoRoom):
        CallPayer(call, caller).reserve(lambda limits: cost)
    assert reserved is not None
    CallPayer(call, caller).settle(reserved, {"requests": 0})
    with pytest.raises(NoRoom):
        CallPayer(call, uuid4()).reserve(lambda limits: cost)

    window = BudgetWindow.objects.get()
    assert window.spent == 0 and window.reserved == 0


def test_what_was_reserved_for_a_request_that_is_cut_is_spent_at_once(lab: Lab, caller: UUID) -> None:
    create_budget(scope="installation", period="day", measure="requests", cap=Decimal(2), by="a test")
    left(lab)
    CallPayer(taken(caller), caller).reserve(lambda limits: Cost(requests=1))
    rows.let_go(caller, [call.wait_id for call in ModelCall.objects.all()])
    CallPayer(taken(caller), caller).reserve(lambda limits: Cost(requests=1))

    assert wake.settle_lost() == 1
    window = BudgetWindow.objects.get()
    assert (window.spent, window.reserved) == (Decimal(1), Decimal(1))


def test_a_postponement_that_comes_late_leaves_the_intent_of_a_run_that_is_parked_over_it(
    lab: Lab, left_once: Run, caller: UUID, wire: Wire
) -> None:
    """The run was cancelled and requeued before its caller heard that the provider is busy."""
    call = taken(caller)
    cancel(left_once.id, by="a test")
    requeue(left_once.id, by="a test")
    assert lab.go_on(left_once).status == "uncertain"

    assert not rows.postpone(caller, call.wait_id, 0.0, "busy")

    assert Step.objects.get(kind="model").status == "started"


@pytest.mark.usefixtures("server_has_run_for_a_lease")
def test_a_request_that_has_begun_is_not_made_again_although_an_earlier_version_has_freed_it(
    lab: Lab, left_once: Run, caller: UUID, wire: Wire, settings: Settings
) -> None:
    """A caller of a version without intents frees all requests of one that is gone."""
    taken(caller)
    ModelCall.objects.update(owner_id=None, due_at=Now())
    second = Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=3, version="1").id

    assert rows.take(second, 10) == []

    ModelCall.objects.update(
        created_at=F("created_at") - 2 * settings.WAKEFUL_LEASE, due_at=F("due_at") - 2 * settings.WAKEFUL_LEASE
    )
    assert rows.hand_back_abandoned() == 1
    assert lab.go_on(left_once).status == "uncertain"
    assert not wire.requests


def test_a_request_that_has_failed_and_may_now_be_made_once_begins_anew(
    lab: Lab, left_once: Run, caller: UUID, wire: Wire
) -> None:
    """It failed before the code asked for `llm_in_flight="park"`."""
    key = ModelCall.objects.get().step["key"]
    Step.objects.create(
        run=left_once,
        key=key,
        position=1,
        is_keyed=False,
        effect="idempotent",
        status="failed",
        epoch=1,
        ended_at=Now(),
    )

    taken(caller)

    step = Step.objects.get(key=key)
    assert (step.status, step.effect) == ("started", "at_most_once")
