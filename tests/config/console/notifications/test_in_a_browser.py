"""A person opens an inbox, sends it a test, sees it arrive and acknowledges it; and silences a recipient for a day."""

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Delivery, Recipient
from tests.support.console_in_a_browser import log_in
from tests.support.notifying import delivered

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_an_inbox_is_opened_tested_read_and_silenced(live_server: LiveServer, page: Page) -> None:
    log_in(page, live_server, "/admin/inbox/")

    page.get_by_role("button", name="Open my inbox").click()
    expect(page.get_by_text("Nothing is unread.")).to_be_visible()
    inbox = page.locator(".console-pager").get_by_role("link", name="ada")
    inbox.click()
    page.get_by_role("link", name="Send a test").click()
    page.get_by_role("button", name="Send it").click()
    expect(page.locator(".console-notice", has_text="The test is on its way.")).to_be_visible()
    delivered()
    expect(page.get_by_text("The test has arrived at")).to_be_visible()  # the page looks by itself

    page.get_by_role("link", name="Inbox").click()
    expect(page.locator(".console-badge")).to_have_text("1")
    page.get_by_role("button", name="Acknowledge", exact=True).click()
    expect(page.get_by_text("Nothing is unread.")).to_be_visible()
    expect(page.locator(".console-badge")).to_have_count(0)
    assert Delivery.objects.get().acknowledged_by == "admin:ada"

    inbox.click()
    page.get_by_role("link", name="Silence").click()
    page.locator("#dialog").get_by_role("button", name="Silence").click()
    expect(page.get_by_text("Silenced until")).to_be_visible()
    assert Recipient.objects.get().silenced_until is not None
