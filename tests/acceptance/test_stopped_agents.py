"""An operator stops all agents while requests to a model are in flight: each is cancelled, and its run goes on later."""

import time
from pathlib import Path

import pytest

from tests.integration.protocol import emit
from tests.support.stack import Stack, StackMaker, eventually
from tests.support.wire import Held, Turn, Wire

USER_APPS = Path(__file__).parent.parent / "userapps"
PROMISED = 5.0  # seconds
SLACK = 10.0  # of a machine that does much else


@pytest.fixture
def stack(make_stack: StackMaker, wire: Wire) -> Stack:
    env = {**wire.env, "WAKEFUL_MODEL": "openai-chat:gpt-4o", "WAKEFUL_APPS": "talker", "PYTHONPATH": str(USER_APPS)}
    return make_stack(env=env, agents=True)


@pytest.mark.parametrize("way", ["command", "api"])
def test_requests_in_flight_are_cancelled_within_seconds_and_made_again_after_the_start(
    stack: Stack, wire: Wire, way: str
) -> None:
    wire.script("slow", Turn("at last", faults=[Held()]))
    wire.script("quick", "at once")
    stack.up(beat=False)
    with stack.orm():
        from triggers.tokens import ensure_token

        ensure_token("test", stack.env["WAKEFUL_API_TOKEN"], ["*"])
    for name in ("one", "two"):
        emit(stack, "talk", name, prompt=wire.prompt("slow", name))
    eventually(lambda: len(wire.of("one") + wire.of("two")) == 2)

    began = time.monotonic()
    if way == "command":
        said = stack.manage("stop", "--all", "--reason", "it spends too much").stdout
        assert said.count("stops run") == 2
        assert "2 running runs have ended, and wait." in said
    else:
        answer = stack.api("POST", "/api/v1/agents/talker/stop/", {"reason": "it spends too much"})
        assert len(answer.json()["stopped_runs"]) == 2
    eventually(lambda: all(request.end == "left" for request in wire.of("one") + wire.of("two")))
    assert max(request.ended_at for request in wire.of("one") + wire.of("two")) - began < PROMISED + SLACK
    eventually(lambda: [run["status"] for run in stack.query("SELECT status FROM runs_run")] == ["queued"] * 2)
    emit(stack, "talk", "three", prompt=wire.prompt("quick", "three"))
    eventually(lambda: len(stack.query("SELECT id FROM runs_run")) == 3)

    if way == "command":
        stack.manage("start", "--all")
    else:
        stack.api("POST", "/api/v1/agents/talker/start/")
    eventually(lambda: stack.query("SELECT count(*) AS n FROM runs_run WHERE status = 'succeeded'")[0]["n"] == 3)
    assert [len(wire.of(name)) for name in ("one", "two", "three")] == [2, 2, 1]
