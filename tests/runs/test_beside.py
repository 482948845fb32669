"""Steps that run beside others, in an async body."""

import asyncio
from typing import Any

import pytest

from agents import AsyncAgentRun
from runs.models import Step
from tests.support.durable import Lab, lab

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(("of_the_step", "of_the_run"), [(2, 0), (0, 2)])
def test_a_step_that_fails_beside_others_is_tried_again(lab: Lab, of_the_step: int, of_the_run: int) -> None:
    tries: list[str] = []

    async def work(name: str) -> str:
        tries.append(name)
        await asyncio.sleep(0.05 if name == "flaky" else 0)
        if tries.count("flaky") < 3 and name == "flaky":
            raise ValueError("not yet")
        return name

    async def body(run: AsyncAgentRun) -> Any:
        names = ("flaky", "fine")
        steps = [run.step("work", work, name, key=name, effect="read", retries=of_the_step) for name in names]
        return await asyncio.gather(*steps)

    run = lab.later(lab.later(lab.run(body, policy={"retries": of_the_run})))

    assert (run.status, run.result, tries.count("flaky"), tries.count("fine")) == ("succeeded", ["flaky", "fine"], 3, 1)


@pytest.mark.parametrize("is_coroutine", [True, False])
def test_steps_without_keys_do_not_run_beside_others(lab: Lab, is_coroutine: bool) -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    async def body(run: AsyncAgentRun) -> None:
        done: Any = work if is_coroutine else lambda: None
        await asyncio.gather(run.step("a", done, effect="read"), run.step("b", done, effect="read"))

    run = lab.run(body)

    assert run.status == "failed"
    assert "'b' runs beside others" in run.error


def test_a_wait_lets_a_parallel_step_end(lab: Lab) -> None:
    calls: list[str] = []

    async def pay() -> str:
        calls.append("pay")
        await asyncio.sleep(0.1)
        return "paid"

    async def body(run: AsyncAgentRun) -> Any:
        return await asyncio.gather(run.step("pay", pay, key="1", effect="at_most_once"), run.sleep("1d", key="1"))

    run = lab.run(body)
    assert (run.status, Step.objects.get().status) == ("waiting", "done")

    run = lab.later(run)
    assert (run.status, run.result, calls) == ("succeeded", ["paid", None], ["pay"])


def test_a_failure_lets_a_parallel_step_end_and_no_other_begin(lab: Lab) -> None:
    calls: list[str] = []

    async def call(name: str) -> str:
        calls.append(name)
        await asyncio.sleep(0.1)
        if name == "bad":
            raise PermissionError("no")
        await asyncio.sleep(0.1)
        return name

    async def one_after_the_other(run: AsyncAgentRun) -> None:
        for name in ("good", "next"):
            await run.step("call", call, name, key=name, effect="at_most_once")

    async def body(run: AsyncAgentRun) -> None:
        await asyncio.gather(run.step("call", call, "bad", key="bad", effect="idempotent"), one_after_the_other(run))

    run = lab.run(body, policy={"backoff": 900})  # so that a busy machine does not see the next attempt

    assert run.error.startswith("StepFailed: step 'call:bad'")
    assert sorted(calls) == ["bad", "good"]
    assert {step.key: step.status for step in Step.objects.all()} == {"call:good": "done", "call:bad": "failed"}


def test_a_task_that_outlives_its_step_cannot_emit(lab: Lab) -> None:
    tasks: list[asyncio.Task[None]] = []

    async def emit_late(run: AsyncAgentRun) -> None:
        await asyncio.sleep(0.1)
        await run.emit("late", 1)

    async def begin(run: AsyncAgentRun) -> None:
        tasks.append(asyncio.create_task(emit_late(run)))

    async def body(run: AsyncAgentRun) -> None:
        await run.step("begin", begin, run, effect="idempotent")
        await tasks[0]

    run = lab.run(body)

    assert run.status == "failed"
    assert "step 'begin' has ended" in run.error
