"""Runs of an LLM agent that an operator stops, or that come to a cap: requests in flight are cancelled, and the runs go on later."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_operators_day import log_in
from tests.integration.protocol import emit, in_status, run_of
from tests.support.stack import Stack, StackMaker, eventually, within
from tests.support.wire import Held, Turn, Wire, providing

USER_APPS = Path(__file__).parent.parent / "userapps"
PROMISED = 5.0  # seconds
SLACK = 10.0  # of a machine that does much else


@pytest.fixture(scope="module")
def provider() -> Iterator[Wire]:
    with providing() as wire:
        yield wire


@pytest.fixture(scope="module")
def running(make_shared_stack: StackMaker, provider: Wire) -> Stack:
    apps = {"WAKEFUL_APPS": "talker", "PYTHONPATH": str(USER_APPS)}
    stack = make_shared_stack(env={**apps, **provider.env, "WAKEFUL_MODEL": "openai-chat:gpt-4o"}, agents=True)
    stack.admit()
    return stack.up(beat=False)


def talk(stack: Stack, provider: Wire, script: str, conversation: str) -> str:
    """The event that starts a run with this conversation."""
    return emit(stack, "talk", conversation, prompt=provider.prompt(script, conversation))


@pytest.mark.chaos
@pytest.mark.parametrize("way", ["command", "api"])
def test_requests_in_flight_are_cancelled_within_seconds_and_made_again_after_the_start(
    running: Stack, provider: Wire, way: str
) -> None:
    provider.script("slow", Turn("at last", faults=[Held()]))
    provider.script("quick", "at once")
    one, two, three = (f"{way}-{number}" for number in ("one", "two", "three"))
    events = [talk(running, provider, "slow", name) for name in (one, two)]
    eventually(lambda: len(provider.of(one) + provider.of(two)) == 2)

    began = time.monotonic()
    if way == "command":
        output = running.manage("stop", "--all", "--reason", "it spends too much").stdout
        assert output.count("stops run") == 2
        assert "2 running runs have ended, and wait." in output
    else:
        answer = running.api("POST", "/api/v1/agents/talker/stop/", {"reason": "it spends too much"})
        assert len(answer.json()["stopped_runs"]) == 2
    eventually(lambda: all(request.end == "left" for request in provider.of(one) + provider.of(two)))
    assert max(request.ended_at for request in provider.of(one) + provider.of(two)) - began < PROMISED + SLACK
    for event in events:
        in_status(running, event, "queued")
    events.append(talk(running, provider, "quick", three))
    assert run_of(running, events[-1])["status"] == "queued"

    if way == "command":
        running.manage("start", "--all")
    else:
        running.api("POST", "/api/v1/agents/talker/start/")
    for event in events:
        in_status(running, event, "succeeded")
    assert [len(provider.of(name)) for name in (one, two, three)] == [2, 2, 1]


@pytest.mark.chaos
@pytest.mark.browser
def test_an_operator_stops_one_agent_and_then_all_and_starts_them(running: Stack, provider: Wire, page: Page) -> None:
    provider.script("stopped-twice", Turn("at last", faults=[Held(), Held()]))
    log_in(page, running)
    event = talk(running, provider, "stopped-twice", "watched")
    run = run_of(running, event)["id"]

    for number, which in enumerate(("agent talker", "all agents"), start=1):
        eventually(lambda: len(provider.of("watched")) == number)  # noqa: B023
        page.goto(f"{running.url}/admin/runs/agentstop/agents/")
        page.get_by_role("link", name=f"Stop {which}").click()
        page.locator("[name=reason]").fill("it spends too much")
        with within(PROMISED):
            page.get_by_role("button", name="Stop", exact=True).click()
            eventually(lambda: provider.of("watched")[-1].end == "left")
        expect(page.get_by_text("Stopped, with 1 running run: talker")).to_be_visible()
        expect(page.locator(f"a[href*='{run}']").first).to_be_visible()
        expect(page.get_by_text(re.compile(f"{which} (is|are) stopped", re.IGNORECASE)).first).to_be_visible()
        in_status(running, event, "queued")
        page.get_by_role("link", name=f"Start {which}").click()
        page.get_by_role("button", name="Start", exact=True).click()
        expect(page.get_by_text("Started.")).to_be_visible()

    assert in_status(running, event, "succeeded")["result"] == "at last"
    assert provider.asked("watched") == {0: 3}


@pytest.mark.chaos
@pytest.mark.browser
def test_a_run_at_its_cap_finishes_once_an_operator_raises_the_cap(running: Stack, provider: Wire, page: Page) -> None:
    provider.script("quick", "at once")
    cap = {"scope": "agent", "name": "talker", "period": "day", "measure": "usd", "cap": "0.001"}
    assert running.api("POST", "/api/v1/budgets/", cap).status == 201
    event = talk(running, provider, "quick", "poor")
    run = in_status(running, event, "waiting")
    assert not provider.of("poor")

    log_in(page, running)
    page.goto(f"{running.url}/admin/runs/run/{run['id']}/change/")
    expect(page.get_by_text(re.compile("^Waits for budget: ")).first).to_be_visible()
    page.get_by_role("link", name="Raise a cap, or allow more once").click()
    page.locator("#result_list").get_by_role("link", name="agent talker").click()
    page.get_by_role("link", name="Change cap").click()
    page.locator("[name=cap]").fill("20")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()

    in_status(running, event, "succeeded")
    page.goto(f"{running.url}/admin/runs/run/{run['id']}/change/")
    expect(page.get_by_text("Succeeded: all its work is committed.")).to_be_visible()
    expect(page.locator("#conversation").get_by_text("at once")).to_be_visible()
    assert provider.asked("poor") == {0: 1}
