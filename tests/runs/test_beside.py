"""Steps that run beside others, in an async body."""

import asyncio
from typing import Any

import pytest

from agents import AsyncAgentRun
from tests.runs.durable import Lab, lab

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
