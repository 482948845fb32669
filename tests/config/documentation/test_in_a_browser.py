"""The pages in a browser, wide and as wide as a phone."""

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from config.documentation.pages import pages

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("width", [390, 1440])
def test_no_page_scrolls_sideways_or_breaks_the_policy(width: int, live_server: LiveServer, page: Page) -> None:
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.set_viewport_size({"width": width, "height": 844})

    reference = ("/api/docs/", "/api/docs/runs/", "/api/docs/schedules/")
    for path in (*(f"/docs/{slug}{'/' if slug else ''}" for slug in pages().by_slug), *reference):
        page.goto(f"{live_server.url}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    assert not refused


def test_a_reader_searches_and_comes_to_the_section(live_server: LiveServer, page: Page) -> None:
    page.goto(f"{live_server.url}/docs/")
    page.get_by_role("searchbox").fill("quiet hours")
    page.get_by_role("searchbox").press("Enter")
    page.get_by_role("main").get_by_role("link").first.click()

    expect(page.get_by_role("main").get_by_text("quiet hours").first).to_be_visible()


def test_on_a_phone_the_map_opens(live_server: LiveServer, page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{live_server.url}/docs/webhooks/")

    page.get_by_text("All pages").click()
    page.get_by_role("link", name="Brokers", exact=True).first.click()

    expect(page.get_by_role("heading", name="Brokers", level=1)).to_be_visible()
