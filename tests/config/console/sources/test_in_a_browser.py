"""A person searches a kind, makes a source of it, and sends its test event."""

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.support.console_in_a_browser import log_in
from triggers.models import Event

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_source_is_searched_made_and_tested(live_server: LiveServer, page: Page) -> None:
    log_in(page, live_server, "/admin/triggers/source/add/")

    kinds = page.locator(".console-kinds")
    expect(kinds.get_by_role("link", name="Bearer token")).to_be_visible()
    page.get_by_role("searchbox", name="Where do the events come from?").fill(" gitHub")
    expect(kinds.get_by_role("link", name="Bearer token")).to_be_hidden()
    expect(page.get_by_role("heading", name="Any sender")).to_be_hidden()
    kinds.get_by_role("link", name="GitHub").click()

    expect(page.get_by_text("Settings → Webhooks → Add webhook")).to_be_visible()
    page.get_by_label("Name").fill("hub")
    page.get_by_role("button", name="Create the source").click()
    expect(page.locator(".console-secret")).to_be_visible()
    page.get_by_role("link", name="I have copied it").click()

    page.get_by_role("link", name="Send a test event").click()
    page.get_by_role("button", name="Send it").click()
    expect(page.get_by_text("Test event accepted (202)")).to_be_visible()
    page.get_by_text("Test event accepted").get_by_role("link").click()
    expect(page.get_by_text("issues.opened").first).to_be_visible()
    assert Event.objects.get().source.slug == "hub"
