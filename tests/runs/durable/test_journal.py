"""A durable body is replayed from the top, and each of its steps is done once."""

import contextlib
import socket
import time
from threading import Thread
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from agents import AgentRun, AsyncAgentRun, Permanent, Retry, StepFailed
from agents.models import AgentState
from runs.actions.resolve import resolve
from runs.models import Attempt, Notification, OutboxMessage, Step
from tests.support.durable import Lab, lab
from tests.support.stack import within
from triggers.models import Event

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_replay_gives_the_outputs_as_json_gave_them_the_first_time(lab: Lab) -> None:
    seen: list[Any] = []

    def body(run: AgentRun) -> None:
        seen.append(run.step("make", lambda: {"pair": (1, 2), 3: "three"}))
        run.sleep("1d")

    lab.later(lab.run(body))

    assert seen == [{"pair": [1, 2], "3": "three"}] * 2


def test_a_step_that_fails_leaves_nothing_of_its_own(lab: Lab) -> None:
    def fail(run: AgentRun) -> None:
        Group.objects.create(name="gone")
        run.emit("lost")
        raise ValueError("no")

    def body(run: AgentRun) -> str:
        try:
            run.step("bad", fail, run)
        except StepFailed as error:
            return f"{error.kind}: {error.message}"
        return "?"

    run = lab.run(body)

    assert run.result == "ValueError: no"
    assert not Group.objects.exists()
    assert not OutboxMessage.objects.filter(topic="event").exists()
    assert Step.objects.get().status == "failed"


def test_a_step_that_is_committed_is_done_whatever_its_hooks_raise(lab: Lab) -> None:
    def add() -> str:
        def fail() -> None:
            raise OSError("no mail today")

        transaction.on_commit(fail)
        return Group.objects.create(name=f"{Group.objects.count()}").name

    def body(run: AgentRun) -> Any:
        return run.step("add", add)

    run = lab.later(lab.run(body, policy={"retries": 1}))

    assert (run.status, run.result, Group.objects.count()) == ("succeeded", "0", 1)
    assert [(step.status, step.output) for step in Step.objects.all()] == [("done", "0")]


def test_a_recorded_failure_is_raised_again_where_something_came_after_it(lab: Lab) -> None:
    tries: list[int] = []

    def bad() -> None:
        tries.append(1)
        raise ValueError("no")

    def body(run: AgentRun) -> str:
        try:
            run.step("bad", bad)
        except StepFailed as error:
            run.step("note", lambda: None)
            run.sleep("1d")
            return error.kind
        return "?"

    run = lab.later(lab.run(body))

    assert (run.status, run.result, len(tries)) == ("succeeded", "ValueError", 1)


def test_a_failed_last_step_is_tried_again_by_the_next_attempt(lab: Lab) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise ValueError("no")
        return "yes"

    run = lab.run(lambda run: run.step("flaky", flaky), policy={"retries": 1})
    assert (run.status, run.error) == ("queued", "StepFailed: step 'flaky' failed: ValueError: no")
    run = lab.later(run)

    assert (run.status, run.result, len(tries), Step.objects.get().attempts) == ("succeeded", "yes", 2, 2)


def test_retries_of_a_step_free_the_worker_and_cost_no_attempt(lab: Lab) -> None:
    tries: list[int] = []

    def flaky() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("no")
        return "yes"

    run = lab.run(lambda run: run.step("flaky", flaky, effect="idempotent", retries=2))
    assert (run.status, run.attempt) == ("queued", 0)
    assert run.due_at
    run = lab.later(lab.later(run))

    assert (run.status, run.result, Step.objects.get().attempts) == ("succeeded", "yes", 3)


def test_progress_sets_the_attempts_to_0(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.step("one", lambda: None)
        raise ValueError("after progress")

    run = lab.run(body, policy={"retries": 1})

    assert (run.status, run.attempt) == ("queued", 0)


def test_a_write_outside_of_a_step_is_refused_with_the_fix(lab: Lab) -> None:
    run = lab.run(lambda run: Group.objects.create(name="sneaky") and None)

    assert run.status == "failed"
    assert "run.step(" in run.error
    assert not Group.objects.exists()


def test_a_write_in_a_step_that_only_reads_is_refused_with_the_fix(lab: Lab) -> None:
    run = lab.run(lambda run: run.step("read", lambda: Group.objects.create(name="x") and None, effect="read"))

    assert run.status == "failed"
    assert "transactional" in run.error


def test_the_network_is_refused_in_a_transactional_step_with_the_fix(lab: Lab) -> None:
    run = lab.run(lambda run: run.step("call", lambda: socket.create_connection(("127.0.0.1", 9)) and None))

    assert run.status == "failed"
    assert 'effect="read"' in run.error


def test_the_session_writes_again_after_a_durable_run(lab: Lab) -> None:
    lab.run(lambda run: None)

    Group.objects.create(name="after")


def test_an_at_most_once_step_with_an_unknown_outcome_parks_the_run(lab: Lab) -> None:
    calls: list[int] = []

    def charge(cents: int) -> None:
        calls.append(cents)
        raise TimeoutError("no answer")

    run = lab.run(lambda run: run.step("charge", charge, 100, effect="at_most_once"))

    assert run.status == "uncertain"
    assert "TimeoutError" in run.status_reason
    step = Step.objects.get()
    assert (step.status, step.arguments, step.idempotency_key) == ("started", [100], f"{run.id}:charge")
    lab.go_on(run)
    assert calls == [100]


@pytest.mark.parametrize("error", [Permanent("refused"), Retry("not sent", after=0)])
def test_an_at_most_once_step_that_raises_retry_or_permanent_did_not_happen(lab: Lab, error: Exception) -> None:
    calls: list[int] = []

    def charge() -> str:
        calls.append(1)
        if len(calls) == 1:
            raise error
        return "done"

    run = lab.later(lab.run(lambda run: run.step("charge", charge, effect="at_most_once"), policy={"retries": 1}))

    assert run.status == ("failed" if isinstance(error, Permanent) else "succeeded")


def test_values_are_the_same_on_every_replay(lab: Lab) -> None:
    seen: list[Any] = []

    def body(run: AgentRun) -> None:
        seen.append((run.now(), run.uuid(), run.random()))
        run.step("between", lambda: None)
        seen.append(run.now())
        run.sleep("1d")

    lab.later(lab.run(body))

    assert seen[:2] == seen[2:]
    assert isinstance(seen[0][1], UUID)


@pytest.mark.sampled
def test_thousands_of_recorded_values_take_linear_time(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        for _ in range(4000):
            run.random()
        run.step("use them", lambda: None)

    with within(5):
        run = lab.run(body)

    assert run.status == "succeeded"


def test_an_event_of_a_step_is_committed_with_it_and_once(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.emit("plain", {"n": 1})
        run.step("step", lambda: run.emit("inside", {"n": 2}))
        run.notify("told", topic="t", to=["ops", "ada"])
        run.sleep("1d")

    run = lab.run(body)
    assert run.status == "waiting"
    lab.later(run)

    from triggers.models import Event

    assert sorted(Event.objects.filter(cause_run_id=run.id).values_list("type", "ce_id")) == [
        ("inside", f"{run.id}:step/1"),
        ("plain", f"{run.id}:emit plain#1"),
    ]
    notification = Notification.objects.get(run_id=run.id)
    assert (notification.topic, notification.to, notification.link, notification.planned_at) == (
        "t",
        ["ops", "ada"],
        f"run:{run.id}",
        None,
    )


def test_events_of_two_steps_have_different_names_for_any_keys(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.step("import", lambda: run.emit("imported", 1, key="b/c"), key="a")
        run.step("import", lambda: run.emit("imported", 2, key="c"), key="a/b")

    lab.run(body)

    assert [event.data for event in Event.objects.filter(type="imported").order_by("seq")] == [1, 2]


def test_state_is_read_once_and_written_in_a_step(lab: Lab) -> None:
    seen: list[Any] = []

    def body(run: AgentRun) -> None:
        seen.append(run.state.get("count", 0))
        run.state.set("count", seen[-1] + 1)
        run.sleep("1d")

    lab.later(lab.run(body))

    from agents.models import AgentState

    assert seen == [0, 0]
    assert AgentState.objects.get(agent="durable").value == 1


def test_state_that_is_set_and_never_read_may_be_set_again_after_a_wait(lab: Lab) -> None:
    AgentState.objects.create(agent="durable", name="phase", value="of an earlier run", revision=7)

    def body(run: AgentRun) -> None:
        run.state.set("phase", "begun")
        run.sleep("1d")
        run.state.set("phase", "done")

    run = lab.later(lab.run(body))

    assert (run.status, run.error, AgentState.objects.get().value) == ("succeeded", "", "done")


def test_state_that_a_failed_step_has_set_was_never_set(lab: Lab) -> None:
    def fail(run: AgentRun) -> None:
        run.state.set("count", run.state.get("count", 0) + 1)
        raise Permanent("no")

    def body(run: AgentRun) -> None:
        with contextlib.suppress(StepFailed):
            run.step("count", fail, run)
        run.state.set("count", 5)

    run = lab.run(body)

    assert (run.status, AgentState.objects.get().value) == ("succeeded", 5)


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (["a", "new", "b"], "'b'"),
        (["a"], "'b'"),
        (["new"], "'a', 'b'"),
    ],
)
def test_code_that_no_longer_fits_the_journal_parks_the_run(lab: Lab, after: list[str], expected: str) -> None:
    def body_of(names: list[str]) -> Any:
        def body(run: AgentRun) -> None:
            for name in names:
                run.step(name, lambda: None)
            run.sleep("1d")

        return body

    run = lab.run(body_of(["a", "b"]))
    lab.declare(body_of(after))
    run = lab.later(run)

    assert run.status == "uncertain"
    assert expected in run.status_reason


def test_code_that_goes_on_differently_after_the_journal_fits(lab: Lab) -> None:
    def before(run: AgentRun) -> None:
        run.step("a", lambda: None)
        run.sleep("1d")

    def after(run: AgentRun) -> str:
        run.step("a", lambda: None)
        run.sleep("1d")
        return str(run.step("b", lambda: "b"))

    run = lab.run(before)
    lab.declare(after)
    run = lab.later(run)

    assert (run.status, run.result) == ("succeeded", "b")


def test_atomic_code_does_not_repeat_a_run_with_a_journal(lab: Lab) -> None:
    calls: list[str] = []

    def durable(run: AgentRun) -> None:
        run.step("one", lambda: calls.append("one"))
        run.sleep("1d")

    def atomic(run: AgentRun) -> None:
        calls.append("atomic")

    run = lab.run(durable)
    lab.declare(atomic, durable=False)
    run = lab.later(run)
    assert (run.status, calls) == ("uncertain", ["one"])
    assert "atomic" in run.status_reason

    lab.declare(durable)
    resolve(run.id, outcome="did_not_happen", by="test")
    assert (lab.go_on(run).status, calls) == ("succeeded", ["one"])


def test_a_name_used_twice_needs_keys(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        for _ in range(2):
            run.step("same", lambda: None)

    run = lab.run(body)

    assert run.status == "failed"
    assert "key=" in run.error


def test_keyed_steps_may_change_their_order(lab: Lab) -> None:
    orders = iter([[1, 2], [2, 3, 1]])
    done: list[int] = []

    def body(run: AgentRun) -> None:
        for number in next(orders):
            run.step("send", lambda number=number: done.append(number), key=number, effect="idempotent")
        run.sleep("1d")

    run = lab.later(lab.run(body))

    assert (run.status, done) == ("waiting", [1, 2, 3]) or (run.status, done) == ("succeeded", [1, 2, 3])


def test_steps_in_threads_need_keys_and_are_done_once(lab: Lab) -> None:
    failures: list[BaseException] = []

    def body(run: AgentRun, keyed: bool = True) -> None:
        def work(number: int) -> None:
            try:
                name = f"{number}"
                run.step("make", lambda: Group.objects.create(name=name).pk and None, key=number if keyed else "")
            except Exception as error:
                failures.append(error)

        threads = [Thread(target=work, args=[number]) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        run.sleep("1d")

    run = lab.later(lab.run(body))
    assert not failures
    assert (run.status, Group.objects.count()) == ("succeeded", 3)

    lab.run(lambda run: body(run, keyed=False))
    assert "key=" in str(failures[0])


def test_a_step_within_a_step_or_a_transaction_is_refused(lab: Lab) -> None:
    def nested(run: AgentRun) -> None:
        run.step("outer", lambda: run.step("inner", lambda: None))

    def within(run: AgentRun) -> None:
        with transaction.atomic():
            run.step("one", lambda: None)

    assert "inside step 'outer'" in lab.run(nested).error
    assert "transaction.atomic()" in lab.run(within).error


def test_an_output_that_is_too_large_shows_what_to_do(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_MAX_OUTPUT = 100

    run = lab.run(lambda run: run.step("big", lambda: "x" * 200))

    assert run.status == "failed"
    assert "WAKEFUL_MAX_OUTPUT" in run.error


def test_a_journal_does_not_grow_for_ever(lab: Lab, settings: Any) -> None:
    settings.WAKEFUL_MAX_ENTRIES = 3

    def body(run: AgentRun) -> None:
        while True:
            run.sleep(0)

    run = lab.run(body)

    assert run.status == "failed"
    assert "WAKEFUL_MAX_ENTRIES" in run.error


def test_a_step_may_have_a_timeout(lab: Lab) -> None:

    run = lab.run(lambda run: run.step("slow", lambda: time.sleep(5), timeout=0.1, effect="read"))

    assert run.status == "failed"
    assert "timeout of 0.1 s" in run.error


def test_a_body_cannot_swallow_a_wait(lab: Lab) -> None:
    def body(run: AgentRun) -> str:
        with contextlib.suppress(BaseException):
            run.sleep("1d")
        return "went on"

    run = lab.run(body)

    assert run.status == "waiting"


def test_the_error_of_an_atomic_agent_that_sleeps_names_durable_true(lab: Lab) -> None:
    run = lab.run(lambda run: run.sleep("1d"), declared={"durable": False})

    assert run.status == "failed"
    assert "durable=True" in run.error


def test_an_async_agent_takes_steps_and_waits_through_the_same_journal(lab: Lab) -> None:
    import asyncio

    calls: list[str] = []

    async def fetch(name: str) -> str:
        await asyncio.sleep(0.01)
        calls.append(name)
        return name

    async def body(run: AsyncAgentRun) -> Any:
        both = await asyncio.gather(
            run.step("fetch", fetch, "a", key="a", effect="read"), run.step("fetch", fetch, "b", key="b", effect="read")
        )
        made = await run.step("make", lambda: Group.objects.create(name="async").name)
        await run.emit("made", {"name": made})
        await run.sleep("1d")
        return [*both, made, (await run.now()).year > 2000]

    run = lab.run(body)
    assert run.status == "waiting"
    run = lab.later(run)

    assert (run.status, run.result) == ("succeeded", ["a", "b", "async", True])
    assert sorted(calls) == ["a", "b"]
    assert Group.objects.count() == 1


def test_a_run_is_released_between_two_steps_when_its_worker_stops(lab: Lab) -> None:
    from django.db.models.functions import Now

    def body(run: AgentRun) -> None:
        run.step("one", lambda: type(lab.worker).objects.update(draining_at=Now()) and None)
        run.step("two", lambda: Group.objects.create(name="two").pk and None)

    run = lab.run(body)

    assert (run.status, run.attempt, Group.objects.count()) == ("queued", 0, 0)
    assert Attempt.objects.get().outcome == "released"


def test_a_cancel_is_noticed_between_two_steps(lab: Lab) -> None:
    from runs.actions.cancel import cancel

    def body(run: AgentRun) -> None:
        run.step("one", lambda: cancel(run.id, by="test").pk and None)
        run.step("two", lambda: Group.objects.create(name="two").pk and None)

    run = lab.run(body)

    assert (run.status, Group.objects.count()) == ("cancelled", 0)


def test_an_output_has_its_keys_in_the_same_order_on_a_replay(lab: Lab) -> None:
    """A prompt that is made of it would change otherwise, and the provider's cache be lost."""
    seen: list[str] = []
    output = {"lines": [{"text": 1, "n": 2}], "b": 1, "a": 2, "ä": 3, "paid": 0.5}

    def body(run: AgentRun) -> None:
        seen.append(str([run.step("read", lambda: output), run.step("again", lambda: output, effect="read")]))
        run.sleep("1h")

    lab.later(lab.run(body))

    assert len(seen) == 2 and seen[0] == seen[1]
