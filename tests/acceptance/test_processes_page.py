"""The Processes page in a browser, on the running stack, while its dispatcher dies and comes back."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_operators_day import log_in
from tests.support.stack import Stack, StackMaker, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.browser]

LOOK = "2s"  # a process is missed after three of these


@pytest.fixture(scope="module")
def running(make_shared_stack: StackMaker) -> Stack:
    stack = make_shared_stack(env={"WAKEFUL_SAFETY_LOOK": LOOK, "WAKEFUL_ALARM_AFTER": "1s", "WAKEFUL_DEMO": "1"})
    stack.manage("prepare", "--demo")
    return stack.up()


def test_a_dead_dispatcher_is_named_with_what_stands_still_and_how_to_start_one(running: Stack, page: Page) -> None:
    log_in(page, running)
    page.get_by_role("link", name=re.compile("Processes$")).click()
    expect(page.get_by_text("All required processes are alive, and nothing is late.")).to_be_visible()

    [dispatcher] = [process for process in running.processes if process.kind == "dispatcher"]
    dispatcher.kill()
    accepted = running.api("POST", "/api/v1/triggers/order-intake/fire/", {"data": {"order": "A-1", "total": "1"}})
    assert accepted.status == 202

    # The page refreshes itself.
    wrong = page.get_by_role("status").filter(has_text="No dispatcher has been seen for")
    expect(wrong).to_contain_text("events are accepted and kept, but no run starts")
    expect(wrong).to_contain_text("vanished: killed, frozen or disconnected")
    expect(wrong).to_contain_text("1 event is waiting")
    expect(wrong).to_contain_text("What to do: Start one: manage.py dispatcher (systemctl start wakeful-dispatcher)")
    expect(page.get_by_role("row", name=re.compile("dispatcher .* unseen"))).to_be_visible()
    page.get_by_role("link", name=re.compile("Overview$")).click()
    expect(page.get_by_text("No dispatcher has been seen for")).to_be_visible()
    assert "no-dispatcher" in running.request("GET", "/health/ready").json()["problems"]

    dispatcher.restart()

    page.get_by_role("link", name=re.compile("Processes$")).click()
    expect(page.get_by_text("All required processes are alive, and nothing is late.")).to_be_visible()
    eventually(lambda: running.query("SELECT id FROM runs_run WHERE finished_at IS NOT NULL"))


def test_everything_is_paused_from_the_page_and_every_page_shows_it(running: Stack, page: Page) -> None:
    log_in(page, running)
    page.get_by_role("link", name=re.compile("Processes$")).click()
    page.get_by_role("link", name="Pause all queues").click()
    page.locator("[name=reason]").fill("the printer burns")
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused.", exact=True)).to_be_visible()

    running.api("POST", "/api/v1/triggers/order-intake/fire/", {"data": {"order": "A-1", "total": "1"}})
    eventually(lambda: running.query("SELECT id FROM runs_run WHERE ready_at IS NOT NULL"))
    page.get_by_role("link", name=re.compile("Events$")).click()
    expect(page.get_by_role("alert")).to_contain_text("All queues are paused")
    expect(page.get_by_role("alert")).to_contain_text("by admin:admin: the printer burns")
    since = "(SELECT paused_at FROM runs_queue WHERE name = '*')"  # a schedule of the demo may have fired before
    assert not running.query(f"SELECT id FROM runs_run WHERE claimed_at > {since}")

    page.get_by_role("alert").get_by_role("link", name="Processes").click()
    page.get_by_role("link", name="Resume all queues").click()
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_text("Resumed.", exact=True)).to_be_visible()
    eventually(lambda: running.query("SELECT id FROM runs_run WHERE finished_at IS NOT NULL"))
