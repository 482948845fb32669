"""A person decides in the inbox without a mouse: the keys lead to entries and buttons, and out of them again."""

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Approval
from tests.support.console import make_incident
from tests.support.console_in_a_browser import PHONE, log_in, violations
from tests.support.journals import make_asking_run, make_question, make_step
from tests.support.runs import make_run

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_approvals_are_decided_by_keys_and_no_key_decides_by_itself(live_server: LiveServer, page: Page) -> None:
    first, second = make_asking_run(), make_asking_run()
    log_in(page, live_server, "/admin/inbox/")
    entries = page.locator("[data-waiting]")

    page.keyboard.press("j")
    expect(entries.first).to_be_focused()
    page.keyboard.press("j")
    expect(entries.nth(1)).to_be_focused()
    page.keyboard.press("k")
    page.keyboard.press("d")
    expect(entries.first.get_by_role("button", name="Deny")).to_be_focused()
    page.keyboard.press("a")
    expect(entries.first.get_by_role("button", name="Approve")).to_be_focused()
    assert not Approval.objects.exclude(decision="").exists()

    page.keyboard.press("Enter")
    expect(page.get_by_text("Approved: the run continues.")).to_be_visible()
    expect(entries).to_have_count(1)
    assert Approval.objects.get(pk=first.pk).decision == "approve"

    page.keyboard.press("j")
    entries.first.get_by_role("textbox").focus()
    page.keyboard.type("a jade day")
    page.keyboard.press("Enter")
    expect(entries.first.get_by_role("textbox")).to_have_value("a jade day")
    assert Approval.objects.get(pk=second.pk).decision == ""

    page.get_by_role("button", name="Keys").click()
    page.keyboard.press("j")
    expect(entries.first).not_to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_every_decision_is_in_sight_and_in_reach(live_server: LiveServer, page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size(PHONE)
    make_asking_run(is_tainted=True)
    make_question()
    make_step(make_run(status="uncertain"), "pay", status="started", arguments={"cents": 1200})
    make_incident("greeter", make_run(status="failed"))
    log_in(page, live_server, "/admin/inbox/")

    for name in ("Approve", "Deny", "Send the answer", "Let it fail", "Requeue its failed runs"):
        box = page.locator("main").get_by_role("button", name=name, exact=True).first.bounding_box()
        assert box and box["height"] >= 44 and box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert page.evaluate("document.documentElement.scrollWidth <= 390")
    assert violations(page) == []
