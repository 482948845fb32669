"""A person connects an account in a browser: from the admin to the provider, and back to a page that says so."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from runs.models import Connection
from tests.support.console_in_a_browser import log_in
from tests.support.oauth_server import CLIENT_ID, CLIENT_SECRET, providing_tokens
from tests.support.secrets import forgotten as forgotten

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_an_account_is_connected_in_a_browser(
    live_server: LiveServer, page: Page, settings: Any, forgotten: None
) -> None:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    settings.WAKEFUL_URL = live_server.url
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    with providing_tokens() as provider:
        log_in(page, live_server)
        page.get_by_role("link", name="Connections").first.click()
        page.goto(f"{live_server.url}/admin/runs/connection/add/")
        page.get_by_role("link", name="Connect Other").click()
        page.locator("[name=name]").fill("mail")
        page.locator("[name=client_id]").fill(CLIENT_ID)
        page.locator("[name=client_secret]").fill(CLIENT_SECRET)
        page.locator("[name=setting_issuer]").fill(provider.url)
        page.locator("[name=setting_hosts]").fill(provider.host)
        page.locator("[name=more_scopes]").fill("mail.read")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("It was never connected")).to_be_visible()

        page.get_by_role("link", name=re.compile(r"\bConnect$")).click()
        page.locator("#modal-content").get_by_role("button", name="Go to the provider").click()
        expect(page.get_by_text("Allow Wakeful?")).to_be_visible()
        page.get_by_role("link", name="Allow").click()

        expect(page.get_by_text("Connection mail is connected.")).to_be_visible()
        expect(page.get_by_text("Connected.", exact=True)).to_be_visible()
        assert "code=" not in page.url
        assert Connection.objects.get().granted == ["mail.read"]
    assert [one for one in wrong if one.startswith(live_server.url)] == []
