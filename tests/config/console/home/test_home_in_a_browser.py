"""The first page stays true while it is looked at, and what a person does on it stays."""

import re

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.actions.approve import decide
from runs.models import Incident
from tests.support.console import make_failed_run, make_incident, make_one_of_each
from tests.support.console_in_a_browser import DESKTOP, PHONE, log_in, violations
from tests.support.journals import make_approval
from tests.support.runs import make_run
from tests.support.triggers import make_trigger

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"  # at once, not after ten seconds


@pytest.fixture
def home(live_server: LiveServer, page: Page) -> Page:
    page.set_viewport_size(DESKTOP)
    log_in(page, live_server)
    expect(page.locator("#home-verdict")).to_be_visible()
    return page


def test_it_changes_by_itself_and_keeps_focus_scroll_and_what_is_open(home: Page) -> None:
    make_incident("order-sync", make_failed_run(make_trigger("order-sync")))
    home.reload()
    requeue = home.get_by_role("button", name=re.compile("^Requeue 1"))
    details = home.locator("details", has_text="What to do").first
    details.locator("summary").click()
    requeue.focus()
    home.evaluate("window.scrollTo(0, 120)")

    make_approval(make_run(status="waiting"), status="open", question="Pay it?")
    home.evaluate(LOOK)

    expect(home.get_by_role("link", name="Pay it?")).to_be_visible()
    expect(requeue).to_be_focused()
    expect(details).to_have_attribute("open", "")
    assert home.evaluate("window.scrollY") == 120


def test_no_button_becomes_that_of_another_row(home: Page) -> None:
    first, second = (make_approval(make_run(status="waiting"), status="open", question=f"Pay {one}?") for one in "AB")
    home.reload()
    home.get_by_role("button", name="Approve: Pay B?").focus()

    decide(first.pk, decision="deny", by="test")
    home.evaluate(LOOK)
    expect(home.get_by_role("link", name="Pay A?")).to_be_hidden()
    home.keyboard.press("Enter")

    expect(home.get_by_text("Approved: the run continues.")).to_be_visible()
    second.refresh_from_db()
    assert second.decision == "approve"


def test_who_looks_at_what_may_be_old_is_warned(home: Page) -> None:
    home.context.clear_cookies()  # logged out elsewhere
    home.evaluate(LOOK)

    expect(home.get_by_text("This page could not update itself")).to_be_visible()


def test_a_button_of_what_appeared_by_itself_works(home: Page) -> None:
    run = make_failed_run(make_trigger("order-sync"))
    make_incident("order-sync", run)
    home.evaluate(LOOK)

    home.get_by_role("button", name=re.compile("^Requeue 1")).click()

    expect(home.get_by_text("1 requeued.")).to_be_visible()
    run.refresh_from_db()
    assert (run.status, Incident.objects.get().is_open) == ("queued", True)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_axe_finds_nothing_on_a_full_page(home: Page, scheme: str, size: dict[str, int]) -> None:
    for number in range(3):
        make_one_of_each(number)
    for _ in range(4):
        make_run(status="succeeded")
    home.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    home.set_viewport_size(size)  # type: ignore[arg-type]
    home.reload(wait_until="networkidle")

    assert violations(home) == []
    assert home.evaluate("document.documentElement.scrollWidth") <= size["width"]
