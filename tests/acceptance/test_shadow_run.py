"""A past event is run in the shadow, in a browser, on the running stack: what it would do is read, and nothing is done."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_operators_day import log_in
from tests.support.stack import SHOP, Stack, StackMaker, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.browser]
DONE = """
SELECT (SELECT count(*) FROM shop_effect) AS effects, (SELECT count(*) FROM triggers_event) AS events,
       (SELECT count(*) FROM runs_run) AS runs, (SELECT count(*) FROM runs_step) AS steps,
       (SELECT count(*) FROM runs_outboxmessage WHERE topic = 'event') AS emitted, (SELECT count(*) FROM triggers_decision) AS decisions
"""


@pytest.fixture
def running(make_stack: StackMaker) -> Stack:
    stack = make_stack(env={**SHOP, "WAKEFUL_APPS": "shop,desk"}, agents=True)
    stack.admit()
    return stack.up()


def test_a_shadow_run_of_a_past_event_shows_its_effects_and_changes_nothing(running: Stack, page: Page) -> None:
    event = running.manage("emit", "effect.counted", "--data", '{"n": 7}').stdout.strip()
    before = settled(running, runs=3)  # two agents on it, and one on what one of them emitted
    log_in(page, running)

    page.goto(f"{running.url}/admin/triggers/event/{event}/change/")
    page.get_by_role("link", name="Shadow run").click()
    page.locator("[name=trigger]").select_option("effect")
    run_in_the_shadow(page)

    expect(page.get_by_text("It would succeed.")).to_be_visible()
    expect(page.get_by_role("row", name="shop_effect 1 0 0")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile('^effected .*"by": "effect"'))).to_be_visible()
    expect(page.get_by_role("row", name=re.compile('INSERT INTO "shop_effect".*1$'))).to_be_visible()
    expect(page.locator("pre", has_text='"n": 7')).to_be_visible()
    assert running.query(DONE)[0] == before

    page.goto(f"{running.url}/admin/triggers/event/{event}/change/")
    expect(page.get_by_role("row", name=re.compile("admin:admin shadow"))).to_be_visible()


def test_a_durable_run_stops_in_the_shadow_where_it_would_call_the_outside(running: Stack, page: Page) -> None:
    assert running.api("POST", "/api/v1/triggers/charge/fire/", {"data": {}}).status == 202
    run = eventually(lambda: running.query("SELECT id FROM runs_run WHERE agent = 'charge' AND status = 'uncertain'"))
    before = running.query(DONE)[0]
    log_in(page, running)

    page.goto(f"{running.url}/admin/runs/run/{run[0]['id']}/change/")
    page.get_by_role("link", name="Shadow run").click()
    expect(page.locator("[name=trigger]")).to_have_value("charge")
    run_in_the_shadow(page)

    expect(page.get_by_text(re.compile("^Stopped at charge card"))).to_be_visible()
    expect(page.locator("pre", has_text='"cents": 4200')).to_be_visible()
    assert running.query(DONE)[0] == before


def run_in_the_shadow(page: Page) -> None:
    """A process of its own starts for it."""
    with page.expect_navigation():
        page.get_by_role("button", name="Try").click(no_wait_after=True)


def settled(stack: Stack, *, runs: int) -> dict[str, Any]:
    """All rows once all runs have succeeded and all messages about them are delivered."""
    succeeded = "SELECT id FROM runs_run WHERE status = 'succeeded'"
    eventually(lambda: len(stack.query(succeeded)) == runs and not stack.query("SELECT id FROM runs_outboxmessage"))
    return stack.query(DONE)[0]
