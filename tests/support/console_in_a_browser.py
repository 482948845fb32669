"""The console in a browser: a person who logs in, the sizes of screens, and what axe looks for."""

from axe_playwright_python.sync_playwright import Axe
from django.contrib.auth.models import User
from playwright.sync_api import Page, ViewportSize
from pytest_django.live_server_helper import LiveServer

DESKTOP: ViewportSize = {"width": 1300, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}


def log_in(page: Page, server: LiveServer, path: str = "/admin/") -> User:
    """As ada, a superuser whose password is `right`; the page is at the path then."""
    ada = User.objects.create_superuser("ada", password="right")
    page.goto(f"{server.url}/admin/login/?next={path}")
    page.locator("[name=username]").fill("ada")
    page.locator("[name=password]").fill("right")
    page.locator("form").get_by_role("button").first.click()
    page.wait_for_url(lambda url: "/admin/login/" not in url)
    return ada


def violations(page: Page) -> list[str]:
    """What axe finds on the page, each with the first element that breaks the rule."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [f"{page.url}: {one['id']}: {one['nodes'][0]['html'][:200]}" for one in found]
