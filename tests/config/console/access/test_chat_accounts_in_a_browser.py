"""A person links an account at a chat, and unlinks it, on a desktop and on a phone."""

import re

import pytest
from playwright.sync_api import Page, ViewportSize, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import ChatAccount, ChatLinkCode
from tests.support.asking import asking_slack, linked
from tests.support.console_in_a_browser import DESKTOP, PHONE, log_in, violations

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_an_account_is_linked_and_unlinked(live_server: LiveServer, page: Page, size: ViewportSize) -> None:
    page.set_viewport_size(size)
    ada = log_in(page, live_server)
    linked(asking_slack(1), ada)
    page.goto(f"{live_server.url}/admin/chat-accounts/")

    page.get_by_role("button", name="Make a code for slack").click()
    expect(page.locator("[data-secret]")).to_have_text(re.compile("^link wkl_"))
    assert ChatLinkCode.objects.get().user == ada
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    assert violations(page) == []

    page.get_by_role("button", name="Unlink T1/U1").click()
    expect(page.get_by_text("Unlinked: it decides nothing any more.")).to_be_visible()
    assert not ChatAccount.objects.exists()
