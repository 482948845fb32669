"""The same services through their two doors for programs: API and command line, on the running stack."""

from typing import Any

import pytest

from tests.support.stack import SHOP, Stack, StackMaker, eventually
from triggers.api.tokens import ALL, ensure_token


@pytest.fixture(scope="module")
def running(make_shared_stack: StackMaker) -> Stack:
    stack = make_shared_stack(env=SHOP, agents=True)
    with stack.orm():
        ensure_token("ci", stack.env["WAKEFUL_API_TOKEN"], [ALL])
    return stack.up(beat=False)


def the_run_of(stack: Stack, event: str, trigger: str) -> Any:
    """The run, once it is finished."""
    path = f"/api/v1/runs/?event={event}&trigger={trigger}"
    [run] = eventually(lambda: stack.api("GET", path).json()["results"])
    return stack.api("GET", f"/api/v1/runs/{run['id']}/?wait=30").json()


@pytest.mark.chaos
def test_requeue_by_api_and_by_command_brings_a_failed_run_back(running: Stack) -> None:
    events = [running.manage("emit", "fail.now").stdout.strip() for _ in range(2)]
    failed = [the_run_of(running, event, "failing") for event in events]
    assert [run["status"] for run in failed] == ["failed", "failed"]
    assert "the switch is not fixed" in failed[0]["attempts"][0]["traceback"]

    running.query("INSERT INTO shop_fixedswitch DEFAULT VALUES")
    answer = running.api("POST", f"/api/v1/runs/{failed[0]['id']}/requeue/")
    running.manage("requeue", failed[1]["id"])

    assert (answer.status, answer.json()["status"]) in {(200, "queued"), (200, "running"), (200, "succeeded")}
    for event in events:
        run = the_run_of(running, event, "failing")
        assert (run["status"], run["result"]) == ("succeeded", "fixed")
    refused = running.manage("requeue", failed[0]["id"], check=False)
    assert (refused.returncode, failed[0]["id"] in refused.stderr) == (1, True)
