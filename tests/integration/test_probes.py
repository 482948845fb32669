"""What restarts processes asks `manage.py alive`: it sees what is frozen, and leaves alone what waits for the database."""

import json
import os
import signal
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from config.stack.children import children_of
from runs.processes.probe import KINDS
from runs.processes.pulse import FOLDER
from tests.integration.protocol import emit, in_status
from tests.support.stack import SHOP, Stack, StackMaker, eventually

pytestmark = pytest.mark.chaos

WITHIN = "6"  # seconds: more than the longest rest with this safety look


def probed(stack: Stack, *words: str) -> tuple[bool, dict[str, Any]]:
    done = stack.manage("alive", *words, "--within", WITHIN, "--json", check=False)
    return done.returncode == 0, json.loads(done.stdout)


def is_alive(stack: Stack, *words: str) -> bool:
    return probed(stack, *words)[0]


def send(sent: signal.Signals, pids: Sequence[int]) -> None:
    for pid in pids:
        os.kill(pid, sent)


def test_what_is_frozen_is_not_alive_and_what_waits_for_the_database_is(make_stack: StackMaker, tmp_path: Path) -> None:
    env = {**SHOP, FOLDER: str(tmp_path / "pulses"), "WAKEFUL_SAFETY_LOOK": "1s"}
    stack = make_stack(env=env, agents=True, own_servers=True)
    by_kind = {kind: stack.start(kind, wait=False) for kind in KINDS}
    for process in by_kind.values():
        process.wait_ready()
    second = stack.start("worker")

    for kind in KINDS:
        eventually(partial(is_alive, stack, kind))
        assert by_kind[kind].pid in {one["pid"] for one in probed(stack, kind)[1]["processes"]}

    second.freeze()
    eventually(lambda: not is_alive(stack, "worker"))
    assert is_alive(stack, "worker", "--pid", str(by_kind["worker"].pid))
    assert not is_alive(stack, "worker", "--pid", str(second.pid))
    second.kill()
    eventually(lambda: is_alive(stack, "worker"))

    postgres = stack.servers.postgres
    assert postgres and postgres.process
    postgres.kill()
    for _ in range(3):
        for kind in KINDS:
            assert is_alive(stack, kind), kind
    postgres.start()
    in_status(stack, emit(stack, "effect.again", "again"), "succeeded")
    # A server that is frozen takes connections and answers nothing: statements hang, and so would those of a restarted process.
    frozen = [postgres.process.pid, *children_of(postgres.process.pid)]
    send(signal.SIGSTOP, frozen)
    eventually(lambda: probed(stack, "dispatcher")[1]["processes"][0]["ago"] > float(WITHIN), timeout=60)
    assert all(is_alive(stack, kind) for kind in KINDS)
    send(signal.SIGCONT, frozen)
    eventually(lambda: all(is_alive(stack, kind) for kind in KINDS))


def test_a_server_is_alive_while_its_event_loop_answers_and_while_the_database_does_not(make_stack: StackMaker) -> None:
    """A web process, by itself as in production; one for deliveries alone is the same process behind another port."""
    stack = make_stack(own_servers=True)
    web = stack.start("web", by_itself=True)

    for kind in ("web", "ingest"):
        assert is_alive(stack, kind, "--port", str(stack.port))

    web.freeze()
    for kind in ("web", "ingest"):
        assert not is_alive(stack, kind, "--port", str(stack.port))
    web.thaw()
    eventually(lambda: is_alive(stack, "ingest", "--port", str(stack.port)))

    assert stack.servers.postgres
    stack.servers.postgres.kill()
    for kind in ("web", "ingest"):
        assert is_alive(stack, kind, "--port", str(stack.port))
    web.kill()
    assert not is_alive(stack, "ingest", "--port", str(stack.port))
