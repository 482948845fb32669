"""One person with a keyboard alone: from the login to an approval, and to the end of everything that runs."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Locator, Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import AgentStop, Approval
from tests.support.journals import make_asking_run

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
STOPS = 60  # stops of the Tab key on the way to anything


def tab_to(page: Page, wanted: Locator) -> None:
    """Press Tab until it has the focus."""
    expect(wanted).to_be_visible()
    for _ in range(STOPS):
        if wanted.evaluate("one => one === document.activeElement"):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{STOPS} times Tab do not lead there: {wanted}")


def test_from_the_login_to_an_approval_and_to_stop_everything(live_server: LiveServer, page: Page) -> None:
    approval = make_asking_run()
    User.objects.create_superuser("ada", password="right")

    page.goto(f"{live_server.url}/admin/login/")
    tab_to(page, page.locator("[name=username]"))
    page.keyboard.type("ada")
    tab_to(page, page.locator("[name=password]"))
    page.keyboard.type("right")
    page.keyboard.press("Enter")
    expect(page.locator("#home-verdict")).to_be_visible()

    page.keyboard.press("Control+k")
    page.wait_for_function("document.activeElement?.closest('dialog[open]')")
    page.keyboard.type("inbox")
    expect(page.locator(".found-hit").first).to_be_visible()
    page.keyboard.press("Enter")
    page.wait_for_url("**/admin/inbox/**")
    tab_to(page, page.locator("[data-waiting]").first.get_by_role("button", name="Approve", exact=True))
    page.keyboard.press("Enter")
    expect(page.get_by_text("Approved: the run continues.")).to_be_visible()
    assert Approval.objects.get(pk=approval.pk).decision == "approve"

    tab_to(page, page.get_by_role("link", name="Stop everything"))
    page.keyboard.press("Enter")
    page.wait_for_url("**/stop/**")
    assert not AgentStop.objects.exists()  # a page asks first
    tab_to(page, page.locator("#content").get_by_role("button", name="Stop", exact=True))
    page.keyboard.press("Enter")
    page.wait_for_url("**/admin/runs/agentstop/agents/**")
    assert AgentStop.objects.get().agent == AgentStop.EVERY
