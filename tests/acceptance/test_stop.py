"""An operator stops all agents while requests to a model are in flight: each is cancelled, and its run goes on later."""

import time
from pathlib import Path

import pytest

from tests.support.stack import Stack, StackMaker, eventually
from tests.support.wire import Held, Turn, Wire, providing

USER_APPS = Path(__file__).parent.parent / "userapps"
PROMISED = 5.0  # seconds
SLACK = 10.0  # of a machine that does much else


@pytest.fixture
def talking(make_stack: StackMaker, request: pytest.FixtureRequest) -> tuple[Stack, Wire]:
    wire = request.getfixturevalue("held")
    env = {**wire.env, "WAKEFUL_MODEL": "openai-chat:gpt-4o", "WAKEFUL_APPS": "talker", "PYTHONPATH": str(USER_APPS)}
    return make_stack(env=env, agents=True), wire


@pytest.fixture
def held() -> object:
    with providing() as wire:
        yield wire


@pytest.mark.parametrize("way", ["command", "api"])
def test_requests_in_flight_are_cancelled_within_seconds_and_made_again_after_the_start(
    talking: tuple[Stack, Wire], way: str
) -> None:
    stack, wire = talking
    wire.script("slow", Turn("at last", faults=[Held()]))
    stack.up(beat=False)
    for name in ("one", "two"):
        stack.api("POST", "events/", {"type": "talk", "data": {"prompt": wire.prompt("slow", name)}})
    eventually(lambda: len(wire.of("one") + wire.of("two")) == 2)

    began = time.monotonic()
    if way == "command":
        said = stack.manage("stop", "--all", "--reason", "it spends too much").stdout
        assert said.count("stops run") == 2
        assert "2 running runs have ended, and wait." in said
    else:
        answer = stack.api("POST", "agents/talker/stop/", {"reason": "it spends too much"})
        assert len(answer.json["stopped_runs"]) == 2
    eventually(lambda: all(request.end == "left" for request in wire.of("one") + wire.of("two")))
    assert max(request.ended_at for request in wire.of("one") + wire.of("two")) - began < PROMISED + SLACK
    eventually(lambda: [run["status"] for run in stack.query("SELECT status FROM runs_run")] == ["queued"] * 2)
    stack.api("POST", "events/", {"type": "talk", "data": {"prompt": wire.prompt("slow", "three")}})
    eventually(lambda: len(stack.query("SELECT FROM runs_run")) == 3)

    if way == "command":
        stack.manage("start", "--all")
    else:
        stack.api("POST", "agents/talker/start/")
    eventually(lambda: stack.query("SELECT count(*) AS n FROM runs_run WHERE status = 'succeeded'")[0]["n"] == 3)
    assert [len(wire.of(name)) for name in ("one", "two", "three")] == [2, 2, 2]  # `three` has a request held back, too
