"""The page of a live run follows it, and what a person does on the page meanwhile stays."""

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Run
from tests.support.console import page_of
from tests.support.console_in_a_browser import log_in
from tests.support.journals import make_step
from tests.support.runs import make_run

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_steps_and_the_end_appear_while_focus_and_the_chosen_entry_stay(live_server: LiveServer, page: Page) -> None:
    run = make_run(status="waiting", trigger="fulfil")
    make_step(run, "first")
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    log_in(page, live_server, page_of("runs_run", run))

    entry, pane = page.locator("[data-key=first] a"), page.locator("#journal-entry")
    entry.click()
    expect(pane.get_by_text("Written by claim")).to_be_visible()
    expect(entry).to_be_focused()
    page.evaluate("scrollTo(0, 120)")
    make_step(run, "second")

    expect(page.locator("[data-key=second]")).to_be_visible(timeout=15_000)
    expect(entry).to_be_focused()
    expect(pane.get_by_text("Written by claim")).to_be_visible()
    assert page.evaluate("scrollY") == 120

    cancel = page.locator("main li", has_text="Cancel")
    assert cancel.count() == 1
    Run.objects.filter(pk=run.pk).update(status="cancelled", error="by hand", finished_at=timezone.now())

    expect(page.get_by_text("Cancelled: by hand")).to_be_visible(timeout=15_000)
    expect(cancel).to_have_count(0)
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.wait_for_timeout(3_000)
    assert (requests, errors) == ([], [])
