"""The console with a keyboard, a screen reader and a phone (WCAG 2.2 AA), as far as axe-core finds out."""

import pytest
from playwright.sync_api import Page, ViewportSize, expect
from pytest_django.live_server_helper import LiveServer

from tests.support.console import make_one_of_each, make_source, page_of
from tests.support.console_in_a_browser import DESKTOP, PHONE, log_in, violations
from tests.support.journals import make_child, make_step

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
FORMS = (
    "/admin/runs/agentstop/greeter-1/change/",
    "/admin/triggers/trigger/add/",
    "/admin/triggers/schedule/add/",
    "/admin/triggers/source/add/",
    "/admin/triggers/source/add/?choice=absence",
    "/admin/triggers/source/add/?choice=hmac",
    "/admin/triggers/source/add/?choice=table",
    "/admin/agents/promptagent/add/",
    "/admin/auth/user/?o=1",
    "/admin/find/?q=greeter",
    "/api/docs/",
    "/api/docs/runs/",
)


@pytest.fixture
def paths(live_server: LiveServer, page: Page) -> list[str]:
    rows = make_one_of_each(1)
    page.set_viewport_size(DESKTOP)
    log_in(page, live_server)
    links = page.locator("#nav-sidebar-inner a").evaluate_all(
        "links => links.map(link => link.getAttribute('href') || '')"
    )
    sidebar = dict.fromkeys(link for link in links if link.startswith("/admin/") and "logout" not in link)
    run, pushed = rows["runs_run"], make_source("load", kind="pushed")
    make_step(run, "pay", status="failed", error="refused")
    make_child(run, status="failed")
    detector = page_of("triggers_source", pushed).replace("change", "detector")
    return [*sidebar, *FORMS, detector, *(page_of(noun, row) for noun, row in rows.items())]


@pytest.mark.parametrize(("scheme", "size"), [("light", DESKTOP), ("dark", DESKTOP), ("light", PHONE), ("dark", PHONE)])
def test_axe_finds_nothing_on_any_page(
    live_server: LiveServer, page: Page, paths: list[str], scheme: str, size: ViewportSize
) -> None:
    found: list[str] = []
    page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    page.set_viewport_size(size)

    for path in paths:
        page.goto(f"{live_server.url}{path}", wait_until="networkidle")
        found += violations(page)

    assert found == []
    assert len(paths) > 40


def test_the_names_of_icons_are_not_read_out(live_server: LiveServer, page: Page, paths: list[str]) -> None:
    page.goto(f"{live_server.url}/admin/runs/run/", wait_until="networkidle")

    expect(page.locator("#nav-sidebar-inner").get_by_role("link", name="Overview", exact=True)).to_be_visible()
    expect(page.locator(".material-symbols-outlined:not([aria-hidden=true])")).to_have_count(0)
    page.goto(f"{live_server.url}/admin/auth/user/", wait_until="networkidle")
    expect(page.get_by_role("region", name="Access Users", exact=True).first).to_be_visible()


def test_two_keys_lead_past_the_sidebar(live_server: LiveServer, page: Page, paths: list[str]) -> None:
    page.goto(f"{live_server.url}/admin/runs/run/")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")

    assert page.evaluate("document.querySelector('#content').contains(document.activeElement)")
