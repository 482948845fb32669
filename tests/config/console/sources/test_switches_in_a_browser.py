"""A person chooses what is missing, and sees only the settings of that case."""

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.support.console_in_a_browser import log_in
from tests.support.switches import work
from triggers.models import Source, SwitchTimer

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_deadline_is_made_by_its_case_and_edited_as_that(live_server: LiveServer, page: Page) -> None:
    log_in(page, live_server, "/admin/triggers/source/add/?choice=absence")

    page.locator("[name=case][value=silence]").check()
    expect(page.locator("[name=absence__within]")).to_be_visible()
    expect(page.locator("[name=absence__by]")).to_be_hidden()
    page.locator("[name=absence__within]").fill("no length")  # of another case, so that it does not count
    page.locator("[name=case][value=deadline]").check()
    for name in ("types", "by", "since", "days", "active_zone", "key", "keys"):
        expect(page.locator(f"[name=absence__{name}]")).to_be_visible()
    for name in ("within", "of_types", "active_hours"):
        expect(page.locator(f"[name=absence__{name}]")).to_be_hidden()

    page.get_by_label("Name").fill("release")
    page.locator("[name=absence__types]").fill("ci.passed")
    page.locator("[name=absence__by]").fill("3 pm")
    page.locator("[name=absence__since]").fill("noon")
    page.locator("[name=absence__active_zone]").fill("Europe/Vienna")
    page.locator("[name=absence__key]").fill("event.data.branch")
    page.get_by_role("button", name="Create the source").click()
    expect(page.get_by_text("needs the keys that are expected")).to_be_visible()
    expect(page.locator("[name=absence__within]")).to_be_hidden()
    page.locator("[name=absence__keys]").fill("main, release/2")
    page.get_by_role("button", name="Create the source").click()
    expect(page.get_by_text("Source release is created.")).to_be_visible()

    work()
    page.reload()
    expect(
        page.get_by_text("ci.passed by 15:00 (Europe/Vienna), since 12:00, for each of main, release/2").first
    ).to_be_visible()
    assert set(SwitchTimer.objects.values_list("key", flat=True)) == {"main", "release/2"}

    page.locator("a[href$='/edit/']").first.click()
    expect(page.locator("[name=case][value=deadline]")).to_be_checked()
    expect(page.locator("[name=absence__within]")).to_be_hidden()
    page.locator("[name=case][value=silence]").check()
    page.locator("[name=absence__within]").fill("2h")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    kept = Source.objects.get(slug="release").settings
    assert (kept["within"], kept["by"], kept["since"], kept["keys"]) == ("2h", "", "", "")
