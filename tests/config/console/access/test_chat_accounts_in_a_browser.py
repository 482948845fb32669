"""A person links an account at a chat, and unlinks it, on a desktop and on a phone."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import ChatAccount, ChatLinkCode
from tests.support.asking import asking_slack, linked

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


@pytest.mark.parametrize("size", [(1440, 900), (390, 844)])
def test_an_account_is_linked_and_unlinked(live_server: LiveServer, page: Page, size: tuple[int, int]) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    ada = User.objects.create_superuser("ada", password="right")
    linked(asking_slack(1), ada)
    page.goto(f"{live_server.url}/admin/login/?next=/admin/chat-accounts/")
    page.locator("[name=username]").fill("ada")
    page.locator("[name=password]").fill("right")
    page.locator("form").get_by_role("button").first.click()

    page.get_by_role("button", name="Make a code for slack").click()
    expect(page.locator("[data-secret]")).to_have_text(re.compile("^link wkl_"))
    assert ChatLinkCode.objects.get().user == ada
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    found = Axe().run(page, options=RULES)
    assert found.violations_count == 0, found.generate_report()

    page.get_by_role("button", name="Unlink T1/U1").click()
    expect(page.get_by_text("Unlinked: it decides nothing any more.")).to_be_visible()
    assert not ChatAccount.objects.exists()
