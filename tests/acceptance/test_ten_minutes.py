"""The first ten minutes of a newcomer after `make run`, in the browser alone: an event is sent and its run read, a source is connected,
an agent is made of words, and a failure is found and mended."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_operators_day import press
from tests.acceptance.test_up import Up
from tests.acceptance.test_world_comes_in import keep_picture
from tests.support.servers import reachable_folder
from tests.support.stack import free_port

pytestmark = [pytest.mark.browser, pytest.mark.chaos]

SLOW = 60_000  # milliseconds; what several processes do, on a busy machine


@pytest.fixture
def up() -> Iterator[Up]:
    with reachable_folder() as folder:
        running = Up(Path(folder) / "home", free_port())
        try:
            yield running.wait_ready()
        finally:
            running.end()


def test_everything_is_done_in_the_browser(up: Up, page: Page) -> None:
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(f"{page.url}: {message.text}") if message.type == "error" else None)
    page.set_viewport_size({"width": 1440, "height": 900})
    log_in(page, up)

    send_the_first_event(page)
    connect_a_source(page)
    make_an_agent(page)
    wake_it_by_the_source(page)
    find_a_failure(page)
    mend_it(page)

    assert wrong == []


def log_in(page: Page, up: Up) -> None:
    [(address, user, password)] = re.findall(r"Admin +(\S+) +user: (\S+) +password: (\S+)", up.output())
    page.goto(address)
    page.locator("[name=username]").fill(user)
    page.locator("[name=password]").fill(password)
    page.locator("[type=submit]").click()


def send_the_first_event(page: Page) -> None:
    """The run appears by itself; its page has what it got and what became of it."""
    expect(page.get_by_text("All is well.")).to_be_visible()
    page.get_by_role("button", name="Send this test event").click()
    page.locator(".home-first").get_by_role("link", name="github-issue-triage").click(timeout=SLOW)
    expect(page.get_by_text("Succeeded: all its work is committed.")).to_be_visible(timeout=SLOW)
    expect(page.get_by_role("heading", name="Input")).to_be_visible()
    expect(page.get_by_role("heading", name="Result")).to_be_visible()
    keep_picture(page, "first-run")


def connect_a_source(page: Page) -> None:
    entry(page, "Sources")
    page.get_by_title("Add source").click()
    page.get_by_placeholder("GitHub, HMAC").fill("hmac")
    found = page.locator("a.console-tile:visible")
    expect(found).to_have_count(1)
    found.click()
    page.locator("[name=slug]").fill("shop")
    page.get_by_role("button", name="Create the source").click()
    expect(page.get_by_text("Shown only once.")).to_be_visible()
    page.get_by_text("I have copied it").click()
    expect(page.get_by_text("None names this source.")).to_be_visible()
    keep_picture(page, "source")


def make_an_agent(page: Page) -> None:
    entry(page, "Agents")
    page.get_by_role("link", name=re.compile("Prompt agents$")).first.click()
    page.get_by_title("Add prompt agent").click()
    page.locator("[name=name]").fill("shop-desk")
    page.locator("[name=instructions]").fill("Say in one sentence what happened in the shop.")
    page.get_by_text("also on events or deliveries of a webhook").click()
    page.locator("[name=types]").fill("webhook.received")
    page.locator("[name=source]").select_option("shop")
    page.get_by_role("button", name="Create the agent").click()
    expect(page.get_by_text("Say in one sentence what happened in the shop.").first).to_be_visible()
    keep_picture(page, "agent")


def wake_it_by_the_source(page: Page) -> None:
    entry(page, "Sources")
    page.locator("#result_list").get_by_role("link", name="shop", exact=True).click()
    press(page, "Send a test event", submit="Send it")
    page.get_by_text("Test event accepted (202)").get_by_role("link").click()
    expect(page.get_by_text("Started 1 run.")).to_be_visible(timeout=SLOW)
    page.get_by_role("row", name=re.compile("shop-desk")).get_by_role("link").first.click()
    expect(page.get_by_text("Succeeded: all its work is committed.")).to_be_visible(timeout=SLOW)
    keep_picture(page, "agent-ran")


def find_a_failure(page: Page) -> None:
    """A refund of an order that the shop has not announced."""
    fire(page, "order-refund", '{"order": "A-9"}')
    entry(page, "Overview")
    cause = page.locator("#home-fails").locator("xpath=ancestor::section")
    expect(cause).to_contain_text("order-refund", timeout=SLOW)
    keep_picture(page, "failure")
    cause.get_by_role("link", name="Trigger order-refund").click()
    expect(page.get_by_text("send it as order.placed, then requeue this run").first).to_be_visible()


def mend_it(page: Page) -> None:
    fire(page, "order-intake", '{"order": "A-9", "total": "42.50"}')
    entry(page, "Runs")
    page.locator("#result_list").get_by_role("link", name="order-refund").first.click()
    page.get_by_role("link", name="Requeue", exact=True).click()
    page.locator("#modal-content").get_by_role("button", name="Requeue").click()
    expect(page.get_by_text("Requeued.")).to_be_visible()
    entry(page, "Overview")
    waiting = page.locator("#home-waits").locator("xpath=ancestor::section")
    expect(waiting).to_contain_text("Refund order A-9?", timeout=SLOW)
    waiting.get_by_role("button", name="Approve").click()
    expect(waiting).not_to_contain_text("Refund order A-9?", timeout=SLOW)
    expect(page.get_by_text("Nothing fails.")).to_be_visible(timeout=SLOW)
    keep_picture(page, "mended")


def fire(page: Page, trigger: str, data: str) -> None:
    entry(page, "Triggers")
    page.locator("#result_list").get_by_role("link", name=trigger, exact=True).first.click()
    page.get_by_role("link", name="Fire now").click()
    page.locator("#modal-content [name=data]").fill(data)
    page.locator("#modal-content").get_by_role("button").first.click()
    expect(page.get_by_text(re.compile("Fired|accepted"))).to_be_visible()


def entry(page: Page, name: str) -> None:
    """Of the sidebar."""
    page.locator("#nav-sidebar-inner").get_by_role("link", name=re.compile(rf"\b{name}$")).first.click()
