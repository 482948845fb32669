"""The console works under its Content-Security-Policy, in a browser."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from config.web.headers import POLICY
from tests.support.console import list_of, make_one_of_each, page_of

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PAGES = (
    "/admin/",
    "/admin/coming/?view=line",
    "/admin/runs/queue/processes/",
    "/admin/triggers/trigger/add/",
    "/admin/triggers/schedule/add/",
    "/admin/triggers/source/add/",
    "/admin/triggers/source/add/?choice=hmac",
    "/admin/auth/user/",
    "/admin/django_celery_beat/periodictask/add/",
)


def test_no_page_breaks_the_policy_and_dialogs_and_menus_open(live_server: LiveServer, page: Page) -> None:
    User.objects.create_superuser("ada", password="right")
    rows = make_one_of_each(1)
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(f"{page.url}: {message.text}") if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(f"{page.url}: {error}"))

    answer = page.goto(f"{live_server.url}/admin/login/")
    assert answer and answer.headers["content-security-policy"] == POLICY
    page.locator("[name=username]").fill("ada")
    page.locator("[name=password]").fill("right")
    page.locator("form").get_by_role("button").first.click()
    expect(page.get_by_role("link", name="Triggers").first).to_be_visible()
    nouns = ("triggers_event", "triggers_trigger", "triggers_schedule", "runs_run", "runs_approval")
    for path in (*PAGES, *map(list_of, nouns), *(page_of(noun, rows[noun]) for noun in nouns)):
        page.goto(f"{live_server.url}{path}", wait_until="networkidle")

    page.goto(live_server.url + page_of("triggers_trigger", rows["triggers_trigger"]))
    page.get_by_role("link", name="Pause").click()
    page.locator("#modal-content [name=reason]").fill("because")
    page.locator("#modal-content").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("because").first).to_be_visible()
    assert wrong == []

    # An attribute that was smuggled in does not run.
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.stolen = 1\">')")
    expect(page.locator("img[src=x]")).to_have_count(1)
    assert any("Content Security Policy" in one for one in wrong)
    assert page.evaluate("window.stolen") is None
