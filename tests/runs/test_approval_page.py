"""The page behind a signed link, in a browser that nobody has logged in with."""

import pytest
from playwright.sync_api import Page, expect

from runs.approval_links import approval_link
from runs.models import Approval
from tests.runs.test_approvals import make_asking_run

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_person_edits_the_arguments_and_approves(page: Page, live_server: object) -> None:
    asked = make_asking_run()

    page.goto(f"{live_server}{approval_link(asked)}")
    expect(page.get_by_role("heading")).to_have_text("Refund?")
    page.get_by_label("Arguments").fill('{"invoice": 7, "cents": 600}')
    page.get_by_label("Reason").fill("half of it")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("You have edited the arguments")).to_be_visible()
    page.get_by_role("button", name="Approve with edited arguments").click()

    expect(page.get_by_text("Edited by link on")).to_be_visible()
    assert Approval.objects.get().decided_arguments == {"invoice": 7, "cents": 600}
    assert Approval.objects.get().reason == "half of it"


def test_a_person_approves_what_was_asked(page: Page, live_server: object) -> None:
    asked = make_asking_run()

    page.goto(f"{live_server}{approval_link(asked)}")
    page.get_by_role("button", name="Approve", exact=True).click()

    expect(page.get_by_text("Approved by link on")).to_be_visible()
    expect(page.get_by_role("button")).to_have_count(0)
