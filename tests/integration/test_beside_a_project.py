"""Wakeful beside a team's own project, which has a worker and a Beat of its own, on one database and one Redis: neither harms the
other."""

from pathlib import Path

import pytest
import redis

from tests.integration.protocol import emit, in_status
from tests.support.beside import Shop
from tests.support.stack import SHOP, StackMaker, eventually


@pytest.mark.chaos
def test_a_project_on_the_same_redis_database_loses_none_of_its_tasks(make_stack: StackMaker, tmp_path: Path) -> None:
    stack = make_stack(env=SHOP, agents=True)
    shop = Shop(tmp_path / "shop", stack)
    stack.start("worker")
    stack.start("dispatcher")

    shop.send(40)
    with shop.running("worker", "-c", "2", "-l", "INFO") as theirs:
        eventually(lambda: sum(shop.done().values()) >= 40)
        in_status(stack, emit(stack, "effect.one", "1"), "succeeded")
        # What controls the team's workers does not control ours, and the other way round.
        shop.python("-c", "from shop.celery import app; app.control.shutdown()")
        assert theirs.wait(30) == 0

    assert shop.done() == {str(number): 1 for number in range(40)}
    assert "unregistered" not in shop.log("worker")
    assert all(process.is_alive() for process in stack.processes)
    in_status(stack, emit(stack, "effect.one", "2"), "succeeded")
    assert not stack.query("SELECT 1 FROM runs_outboxmessage WHERE topic = 'unknown-task'")


@pytest.mark.chaos
def test_a_worker_that_gets_the_tasks_of_another_program_keeps_them_until_they_are_put_back(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    stack = make_stack(env=SHOP, agents=True)
    shop = Shop(tmp_path / "shop", stack)
    # As units of before have it; and it serves the queue that has another name now.
    worker = stack.start("worker", queues=["celery", "runs.default"])
    stack.start("dispatcher")

    shop.send(40)
    counted = "SELECT count(*) FROM runs_outboxmessage WHERE topic = 'unknown-task'"
    eventually(lambda: stack.query(counted)[0]["count"] == 40)
    in_status(stack, emit(stack, "effect.one", "1"), "succeeded")
    told = stack.manage("doctor", check=False).stdout
    assert "40 messages are kept of Celery tasks" in told
    assert "billing.tasks.charge (40 from the queue celery)" in told
    with redis.Redis.from_url(stack.redis_url) as client:
        assert eventually(lambda: client.exists("_kombu.binding.wakeful"))

    assert worker.stop() == 0
    with shop.running("worker", "-c", "2"):
        stack.manage("unknown_tasks", "put-back")
        eventually(lambda: sum(shop.done().values()) >= 40)
    assert shop.done() == {str(number): 1 for number in range(40)}
    assert stack.query(counted)[0]["count"] == 0
