"""An operator's day in a browser, on the running stack: a schedule that works, and a failure that is put right."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.stack import SHOP, Stack, StackMaker, eventually

pytestmark = [pytest.mark.browser, pytest.mark.chaos]


@pytest.fixture
def running(make_stack: StackMaker) -> Stack:
    stack = make_stack(env=SHOP, agents=True)
    stack.admit()
    return stack.up()


def test_a_schedule_is_made_and_failed_runs_are_requeued(running: Stack, page: Page) -> None:
    log_in(page, running)
    expect(page.get_by_text("no run has failed")).to_be_visible()

    make_schedule(page, running, name="every second", agent="ticker", every="1s")
    expect(page.get_by_text("every 1 second", exact=True)).to_be_visible()
    see_what_comes(page, "every second")
    eventually(lambda: running.query("SELECT id FROM runs_run WHERE agent = 'ticker' AND status = 'succeeded'"))
    open_latest_run(page, running, agent="ticker")
    expect(page.get_by_text("Succeeded: all its work is committed.")).to_be_visible()
    expect(page.get_by_role("cell", name="schedule.fired")).to_be_visible()

    fire(page, running, trigger="failing")
    for _ in range(2):
        assert running.api("POST", "/api/v1/triggers/failing/fire/").status == 202
    in_status = "SELECT id FROM runs_run WHERE agent = 'failing' AND status = %s"
    eventually(lambda: len(running.query(in_status, "failed")) == 3)
    page.goto(f"{running.url}/admin/")
    expect(page.get_by_role("link", name=re.compile("3 of them failed"))).to_be_visible()
    page.get_by_role("link", name=re.compile("Runs$")).first.click()
    page.get_by_role("link", name="Failed", exact=True).click()
    page.locator("#result_list").get_by_role("link", name="failing").first.click()
    expect(page.get_by_text("Failed: attempts used up")).to_be_visible()
    expect(page.get_by_text('raise RuntimeError("the switch is not fixed")')).to_be_visible()

    running.query("INSERT INTO shop_fixedswitch DEFAULT VALUES")
    press(page, "Requeue", submit="Requeue")
    expect(page.get_by_text("Requeued.")).to_be_visible()
    eventually(lambda: running.query(in_status, "succeeded"))
    page.reload()
    expect(page.get_by_text("Succeeded: all its work is committed.")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("admin:admin requeue"))).to_be_visible()

    page.get_by_role("link", name=re.compile("Runs$")).first.click()
    page.get_by_role("link", name="Failed", exact=True).click()
    page.locator("#action-toggle").check()
    page.locator("select[name=action]").select_option(label="Requeue")
    page.get_by_role("button", name="Run", exact=True).click()

    expect(page.get_by_text("2 requeued.")).to_be_visible()
    eventually(lambda: len(running.query(in_status, "succeeded")) == 3)


def log_in(page: Page, stack: Stack) -> None:
    page.goto(f"{stack.url}/admin/")
    page.locator("[name=username]").fill("admin")
    page.locator("[name=password]").fill(stack.env["WAKEFUL_ADMIN_PASSWORD"])
    page.locator("[type=submit]").click()
    expect(page).to_have_title(re.compile("Overview"))


def make_schedule(page: Page, stack: Stack, *, name: str, agent: str, every: str) -> None:
    page.get_by_role("link", name=re.compile("Schedules$")).click()
    page.get_by_title("Add schedule").click()
    page.locator("[name=name]").fill(name)
    page.locator("[name=agent]").select_option(agent)
    page.locator("[name=when]").fill(f"every {every}")
    expect(
        page.get_by_role("columnheader", name="Next fires in UTC")
    ).to_be_visible()  # the preview, which moves the button
    page.get_by_role("button", name="Create the schedule").click()
    expect(page.get_by_role("columnheader", name="Next fires in UTC")).to_be_hidden()
    expect(page.get_by_text("Next fires")).to_be_visible()


def see_what_comes(page: Page, name: str) -> None:
    """As a list, on a line and by the days of a zone where it is another hour, if not another day."""
    page.get_by_role("link", name=re.compile("Schedules$")).first.click()
    page.get_by_role("link", name="What will wake next", exact=True).click()
    expect(page.get_by_role("row", name=re.compile(name))).to_contain_text("more than 100 times more")
    assert page.context.browser
    elsewhere = page.context.browser.new_context(timezone_id="Asia/Tokyo", storage_state=page.context.storage_state())
    there = elsewhere.new_page()
    there.goto(page.url)
    there.get_by_role("link", name="Next 24 hours").click()
    expect(there.get_by_text("Local time in Asia/Tokyo.")).to_be_visible()
    expect(there.locator(f'.line-band[title$="{name}"]')).to_have_count(1)
    there.get_by_role("link", name="Calendar", exact=True).click()
    there.locator(".month-today a").click()
    expect(there.get_by_role("heading", name=re.compile("^On "))).to_be_visible()
    expect(there.get_by_role("row", name=re.compile(name))).to_be_visible()
    elsewhere.close()


def open_latest_run(page: Page, stack: Stack, *, agent: str) -> None:
    page.goto(f"{stack.url}/admin/runs/run/?agent={agent}&status__exact=succeeded")
    page.locator("#result_list").get_by_role("link", name=agent, exact=True).first.click()


def fire(page: Page, stack: Stack, *, trigger: str) -> None:
    page.goto(f"{stack.url}/admin/triggers/trigger/")
    page.locator("#result_list").get_by_role("link", name=trigger, exact=True).first.click()
    press(page, "Fire now", submit="Fire")
    expect(page.get_by_text("Fired: event")).to_be_visible()


def press(page: Page, button: str, *, submit: str) -> None:
    """A button of the page, and the one that confirms it."""
    page.get_by_role("link", name=button).click()
    page.locator("#modal-content").get_by_role("button", name=submit).click()
