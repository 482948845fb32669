"""The journal of a run: an entry is chosen with a keyboard, beside the others on a wide screen and below it on a phone."""

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Run
from tests.support.console import page_of
from tests.support.console_in_a_browser import DESKTOP, PHONE, log_in
from tests.support.journals import make_step
from tests.support.runs import make_run

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def make_journal() -> Run:
    run = make_run(status="succeeded", trigger="fulfil")
    for position, key in enumerate(("read", "pick", "mail")):
        make_step(run, key, position=position, output={"came of": f"{key} it"})
    return run


def test_arrows_move_enter_chooses_and_the_address_keeps_the_choice(live_server: LiveServer, page: Page) -> None:
    run = make_journal()
    page.set_viewport_size(DESKTOP)
    log_in(page, live_server, page_of("runs_run", run))
    pane, read, mail = (
        page.locator("#journal-entry"),
        page.locator("[data-key=read] a"),
        page.locator("[data-key=mail] a"),
    )
    expect(pane.get_by_text("Choose an entry")).to_be_visible()

    read.focus()
    for key in ("ArrowUp", "ArrowDown", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)

    expect(pane.get_by_text("mail it")).to_be_visible()
    expect(mail).to_be_focused()
    expect(mail).to_have_attribute("aria-current", "true")
    beside, list_ = pane.bounding_box(), page.locator("[data-key=read]").bounding_box()
    assert beside and list_ and beside["x"] >= list_["x"] + list_["width"]
    page.reload()
    expect(pane.get_by_text("mail it")).to_be_visible()
    pane.get_by_role("link", name="Fork from here").click()
    expect(page.locator("#modal-content [name=step]")).to_have_value("mail")


def test_on_a_phone_the_content_follows_its_entry(live_server: LiveServer, page: Page) -> None:
    run = make_journal()
    page.set_viewport_size(PHONE)
    log_in(page, live_server, page_of("runs_run", run))

    page.locator("[data-key=pick] a").click()
    expect(page.locator("#journal-entry").get_by_text("pick it")).to_be_visible()

    order = page.locator(".waterfall > [data-key], #journal-entry").evaluate_all(
        "all => all.map(one => one.dataset.key || one.id)"
    )
    assert order == ["read", "pick", "journal-entry", "mail"]
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_the_link_of_an_entry_leads_to_it(live_server: LiveServer, browser: Browser) -> None:
    run = make_journal()
    page = browser.new_page(java_script_enabled=False)
    log_in(page, live_server, page_of("runs_run", run))

    page.locator("[data-key=pick] a").click()

    expect(page.locator("#journal-entry").get_by_text("pick it")).to_be_visible()
    page.close()
