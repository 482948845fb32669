"""A person edits a checklist in a browser, silences it for a day, and sees who changed what."""

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from agents.checklists.run_checklist import read_checklist
from agents.models import ChecklistItem
from runs.actions.checklists import ItemEdit, create_checklist
from tests.support.console import page_of
from tests.support.console_in_a_browser import log_in

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_checklist_is_edited_and_silenced_for_a_day(live_server: LiveServer, page: Page) -> None:
    checklist = create_checklist("ops", items=[ItemEdit(text="Are there failed runs?")], by="code")
    log_in(page, live_server, page_of("agents_checklist", checklist))

    page.get_by_role("link", name="Edit", exact=True).click()
    page.locator("[name=text_2]").fill("Is the newest backup older than a day?")
    page.locator("[name=every_2]").fill("6h")
    page.get_by_role("button", name="Save").click()

    row = page.get_by_role("row").filter(has_text="Is the newest backup").first
    expect(row).to_contain_text("6 h")
    expect(page.get_by_role("row").filter(has_text="admin:ada").first).to_contain_text("added")
    assert ChecklistItem.objects.count() == 2

    page.get_by_role("link", name="Silence").click()
    page.get_by_role("button", name="Silence").click()

    expect(page.get_by_text("Silenced until").first).to_be_visible()
    assert read_checklist("ops", "").due == ()
