"""A schedule in a browser, on the running stack: made in words, seen, paused, run, backfilled, and explained."""

import re
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.acceptance.test_operators_day import log_in, press
from tests.support.stack import SHOP, Stack, StackMaker, eventually

pytestmark = [pytest.mark.browser, pytest.mark.chaos]

ZONE = ZoneInfo("Asia/Kathmandu")  # a quarter past the hours of others, and its clocks never change
RUNS = "SELECT count(*) AS count FROM runs_run WHERE agent = 'ticker' AND status = 'succeeded'"


@pytest.fixture
def running(make_stack: StackMaker) -> Stack:
    stack = make_stack(env=SHOP, agents=True)
    stack.admit()
    return stack.up()


def test_a_schedule_is_made_in_words_paused_run_made_up_for_and_explained(running: Stack, page: Page) -> None:
    log_in(page, running)
    make_in_words(page)
    pause_with_a_note(page)
    run_now(running, page)
    make_up_for_yesterday(running, page)
    ask_why(page)


def make_in_words(page: Page) -> None:
    page.get_by_role("link", name=re.compile("Schedules$")).click()
    page.get_by_title("Add schedule").click()
    page.locator("[name=name]").fill("report")
    page.locator("[name=agent]").select_option("ticker")
    page.locator("[name=tz]").select_option("Asia/Kathmandu")
    page.locator("[name=when]").press_sequentially("every hour at noon")
    # It answers while one types, before any button is pressed.
    expect(page.locator(".preview-wrong")).to_contain_text("every weekday at 09:00")
    page.locator("[name=when]").fill("hourly")
    expect(page.locator(".preview-words")).to_have_text("Every hour (Asia/Kathmandu)")
    expect(page.locator(".preview tbody tr")).to_have_count(10)
    page.get_by_role("button", name="Create the schedule").click()
    expect(section(page, "Next fires").locator("tbody tr")).to_have_count(10)


def pause_with_a_note(page: Page) -> None:
    page.get_by_role("link", name="Pause").click()
    page.locator("#modal-content [name=note]").fill("until the audit is over")
    page.locator("#modal-content").get_by_role("button", name="Pause").click()
    expect(page.get_by_text(re.compile("Paused .* by admin:admin: it does not fire."))).to_be_visible()
    expect(page.get_by_role("status").get_by_text("until the audit is over")).to_be_visible()
    expect(page.get_by_text("No fire is planned.")).to_be_visible()


def run_now(running: Stack, page: Page) -> None:
    press(page, "Run now", submit="Run now")
    expect(page.get_by_text("Fired: event")).to_be_visible()
    eventually(lambda: running.query(RUNS)[0]["count"] == 1)


def make_up_for_yesterday(running: Stack, page: Page) -> None:
    page.get_by_role("link", name="Backfill").click()
    expect(page.locator(".preview-words")).to_have_text(
        re.compile("^This range contains 24 of its times; 0 have already fired")
    )
    page.locator("[name=at_once]").fill("4")
    page.get_by_role("button", name="Start the backfill").click()
    expect(page.get_by_text("Started a backfill of 24 times.")).to_be_visible()
    eventually(lambda: running.query(RUNS)[0]["count"] == 25)
    # The page refreshes itself.
    expect(page.get_by_role("heading", name="Progress: 24 of 24")).to_be_visible()
    expect(page.get_by_text("24: its run succeeded")).to_be_visible()
    page.get_by_role("link", name="report", exact=True).click()
    expect(section(page, "Last fires").get_by_role("cell", name="backfilled").first).to_be_visible()


def ask_why(page: Page) -> None:
    today = datetime.now(ZONE).replace(hour=9, minute=0, second=0, microsecond=0)
    page.get_by_role("link", name="Why?").click()
    assert "succeeded" in answer(page, today - timedelta(days=1), "It was backfilled by admin:admin")
    answer(page, today - timedelta(days=3), "There was no such schedule yet")
    answer(page, today + timedelta(days=1), "paused")


def answer(page: Page, at: datetime, expected: str) -> str:
    """What the page shows for a local time."""
    page.locator("[name=at]").fill(f"{at:%Y-%m-%dT%H:%M:%S}")
    page.get_by_role("button", name="Explain").click()
    answer = page.get_by_role("status").filter(has_text=expected)
    expect(answer).to_be_visible()
    return answer.inner_text()


def section(page: Page, title: str) -> Locator:
    """A section of a detail page by its heading."""
    return page.locator("section", has=page.get_by_role("heading", name=title, exact=True))
