"""Yesterday's events are searched for, and replayed to a second trigger after the preview, in a browser."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Run
from tests.support.console import list_of
from tests.support.console_in_a_browser import log_in
from tests.support.triggers import make_event, make_trigger
from tests.triggers.replays.test_replays import carry_out
from triggers.models import Replay

pytestmark = [pytest.mark.browser, pytest.mark.chaos, pytest.mark.django_db(transaction=True)]


def test_events_are_searched_and_replayed_to_a_second_trigger(live_server: LiveServer, page: Page) -> None:
    make_trigger("first", types=["order.*"])
    make_trigger("second", types=["order.*"])
    for n in range(60):
        make_event(type="order.placed" if n % 2 else "stock.counted", data={"customer": {"id": 42 + n % 4}})
    log_in(page, live_server)
    expect(page.get_by_role("link", name="Triggers").first).to_be_visible()

    page.goto(live_server.url + list_of("triggers_event"))
    page.get_by_label("Type", exact=True).fill("order.*")
    page.get_by_label("Received from").fill("24h")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_text("30 in total")).to_be_visible()
    keep_picture(page, "list")
    page.get_by_role("link", name="Replay these").click()

    expect(page.get_by_text("The search finds 30 events.")).to_be_visible()
    page.get_by_label("Only these triggers").select_option(label="second")
    page.get_by_label("Rate").fill("1000")
    expect(page.locator(".preview-body").get_by_text("second")).to_be_visible()
    expect(page.locator(".preview-body").get_by_text("first")).to_have_count(0)
    keep_picture(page, "form")
    page.get_by_role("button", name="Start the replay").click()
    expect(page.get_by_text("Progress: 0 of 30")).to_be_visible()
    keep_picture(page, "running")

    carry_out(Replay.objects.get())
    expect(page.get_by_text("Progress: 30 of 30")).to_be_visible()
    keep_picture(page, "done")
    runs = Run.objects.filter(replay_id=Replay.objects.get().pk)
    assert ({run.trigger for run in runs}, len(runs)) == ({"second"}, 30)


def keep_picture(page: Page, name: str) -> None:
    """To look at, if a folder is named."""
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
