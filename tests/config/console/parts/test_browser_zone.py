"""The browser sends its zone to the server, wherever the console is."""

from pathlib import Path

import pytest
from playwright.sync_api import Page, Route

pytestmark = [pytest.mark.chaos, pytest.mark.browser]
SCRIPT = Path("config/static/console/moments.js").read_text()


@pytest.mark.parametrize("home", ["", "/shop"])
def test_the_cookie_of_the_zone_is_sent_to_the_console_below_any_path(page: Page, home: str) -> None:
    sent = []

    def answer(route: Route) -> None:
        sent.append(route.request.all_headers().get("cookie", ""))
        route.fulfill(content_type="text/html", body=f"<script>{SCRIPT}</script>")

    page.route("**/*", answer)
    for path in ("/admin/login/", "/admin/runs/run/", "/api/"):
        page.goto(f"http://wakeful.example.com{home}{path}")

    assert [bool(cookies) for cookies in sent] == [False, True, False] and sent[1].startswith("zone=")
