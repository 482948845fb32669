"""The header by keyboard: the search, the bars above lists, what is chosen there, and whether a page is live."""

import pytest
from playwright.sync_api import Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from config.models import SavedView
from tests.support.console_in_a_browser import DESKTOP, PHONE, log_in, violations
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
LOOK = "document.dispatchEvent(new Event('visibilitychange'))"


@pytest.fixture
def console(live_server: LiveServer, page: Page) -> Page:
    page.set_viewport_size(DESKTOP)
    log_in(page, live_server)
    expect(page.locator("#home-verdict")).to_be_visible()
    return page


def test_a_run_is_found_and_opened_by_keyboard_alone(console: Page, live_server: LiveServer) -> None:
    run = make_run(agent="order-sync", event_id=make_event(subject="A-312").pk)

    console.keyboard.press("Control+k")
    box = console.get_by_role("dialog", name="Search").get_by_role("searchbox")
    expect(box).to_be_focused()
    console.keyboard.type("A-312")
    expect(console.get_by_role("link", name="order-sync · A-312")).to_be_visible()
    console.keyboard.press("ArrowDown")
    expect(console.get_by_role("link", name="order-sync · A-312")).to_be_focused()
    console.keyboard.press("Enter")

    console.wait_for_url(f"{live_server.url}/admin/runs/run/{run.pk}/change/")


def test_escape_closes_the_search_and_gives_the_focus_back(console: Page) -> None:
    opener = console.get_by_role("link", name="Search")
    opener.focus()

    console.keyboard.press("Enter")
    expect(console.get_by_role("dialog", name="Search")).to_be_visible()
    console.keyboard.press("Escape")

    expect(console.get_by_role("dialog", name="Search")).to_be_hidden()
    expect(opener).to_be_focused()
    assert console.evaluate("document.querySelectorAll('dialog[open], [x-show=openCommandResults]').length") == 0


def test_hits_of_a_text_that_was_changed_back_do_not_come_later(console: Page) -> None:
    make_run(agent="order-sync", event_id=make_event(subject="A-31").pk)
    console.keyboard.press("Control+k")
    console.keyboard.type("A-31")
    expect(console.get_by_role("link", name="order-sync · A-31")).to_be_visible()
    status = console.locator("[data-find-status]")
    expect(status).to_contain_text("hit")
    held: list[Route] = []
    console.route("**/admin/find/?q=A-312", lambda route: held.append(route))

    console.keyboard.type("2")
    expect(status).to_have_text("Searching …")
    console.keyboard.press("Backspace")

    expect(status).to_contain_text("hit", timeout=9_000)  # the held one is given up after 10 s
    assert held


def test_a_search_that_is_not_answered_is_no_empty_one(console: Page) -> None:
    console.route("**/admin/find/?q=*", lambda route: route.abort())

    console.keyboard.press("Control+k")
    console.keyboard.type("A-312")

    expect(console.get_by_text("The search has not answered.")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE])
def test_axe_finds_nothing_in_the_search_and_the_choices_of_a_list(
    console: Page, live_server: LiveServer, scheme: str, size: dict[str, int]
) -> None:
    make_trigger("order-sync")
    make_run(agent="order-sync", status="failed", event_id=make_event(subject="order-1").pk)
    console.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    console.set_viewport_size(size)  # type: ignore[arg-type]

    console.keyboard.press("Control+k")
    console.keyboard.type("order-")
    expect(console.get_by_role("link", name="order-sync").first).to_be_visible()
    found = violations(console)
    for choice in ("Columns", "Save view"):
        console.goto(f"{live_server.url}/admin/runs/run/", wait_until="networkidle")
        console.locator("summary", has_text=choice).click()
        found += violations(console)

    assert found == []


def test_the_bars_are_one_stop_of_the_tab_key_and_a_bar_narrows_the_list(
    console: Page, live_server: LiveServer
) -> None:
    make_run(agent="order-sync", status="failed")
    console.goto(f"{live_server.url}/admin/runs/run/", wait_until="networkidle")
    bars = console.locator("[data-bars] a")
    assert bars.evaluate_all("bars => bars.filter(bar => bar.getAttribute('tabindex') === '0').length") == 1

    bars.last.focus()
    console.keyboard.press("ArrowLeft")
    expect(bars.nth(-2)).to_be_focused()
    console.keyboard.press("End")
    expect(bars.last).to_be_focused()
    console.keyboard.press("Enter")

    expect(console.locator("#id_start")).not_to_have_value("")
    expect(console.get_by_role("link", name="order-sync").first).to_be_visible()


def test_columns_and_views_are_chosen_in_the_page(console: Page, live_server: LiveServer) -> None:
    make_run(status="failed")
    console.goto(f"{live_server.url}/admin/runs/run/?status__exact=failed", wait_until="networkidle")

    console.locator("summary", has_text="Columns").click()
    console.get_by_role("checkbox", name="Version").check()
    console.get_by_role("button", name="Show these").click()
    expect(console.get_by_role("columnheader", name="Version")).to_be_visible()
    console.locator("summary", has_text="Save view").click()
    console.get_by_label("Name", exact=True).fill("What fails")
    console.get_by_role("button", name="Save filters and columns").click()

    view = console.get_by_role("navigation", name="Views").get_by_role("link", name="What fails")
    expect(view).to_have_attribute("aria-current", "page")
    assert SavedView.objects.get(name="What fails").query == "status__exact=failed"


def test_a_page_says_that_it_is_live_and_no_longer_when_answers_fail(console: Page) -> None:
    state = console.locator("[data-live-state]")
    expect(state).to_be_hidden()

    console.evaluate(LOOK)
    expect(state).to_have_text("live")
    console.route("**/admin/home/", lambda route: route.abort())
    console.evaluate(LOOK)
    expect(state).to_contain_text("not live since")
    console.unroute("**/admin/home/")
    console.evaluate(LOOK)
    expect(state).to_have_text("live")


def test_a_server_that_does_not_answer_makes_no_page_live(console: Page) -> None:
    held: list[Route] = []
    console.clock.install()
    console.reload()
    console.route("**/admin/home/", lambda route: held.append(route))

    console.evaluate(LOOK)
    console.clock.run_for(60_000)

    expect(console.locator("[data-live-state]")).to_contain_text("not live")


def test_all_agents_are_stopped_in_two_clicks_on_a_phone(console: Page, live_server: LiveServer) -> None:
    console.set_viewport_size(PHONE)
    console.goto(f"{live_server.url}/admin/runs/run/")
    stop = console.get_by_role("link", name="Stop everything")
    expect(stop).to_be_in_viewport()

    stop.click()
    console.get_by_role("button", name="Stop", exact=True).click()

    expect(console.get_by_text("Stopped.").first).to_be_visible()
