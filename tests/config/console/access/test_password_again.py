"""An open session alone erases nothing, and makes no token, secret or account: the password is required again."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin as site
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from config.console.access.password_again import LISTS, PAGES, pages_of_accounts
from config.web.logins import LIMIT
from config.web.sessions import GIVEN
from runs.models import AuditEntry
from tests.config.console.test_permissions import contents_of_every_table, differences, one_of_every_model, pages
from tests.support.console import page_of
from tests.support.console_in_a_browser import log_in
from tests.support.triggers import make_event
from triggers.models import ApiToken, Event

pytestmark = [pytest.mark.sampled, pytest.mark.django_db]
TOKENS = "/admin/triggers/apitoken/add/"
TOKEN = {"name": "ci", "everything": "on"}
ASKS = "/admin/password-again/"
ACCOUNTS = {
    f"{noun}_{verb}" for noun in ("auth_user", "auth_group") for verb in ("add", "change", "delete", "changelist")
}
GUARDED = {f"admin:{name}" for name in PAGES | ACCOUNTS} - {"admin:password_change"}


@pytest.fixture
def admin(admin: Client) -> Client:
    """Its last password was 16 minutes ago."""
    session = admin.session
    session[GIVEN] -= timedelta(minutes=16).total_seconds()
    session.save()
    return admin


def give(client: Client, password: str, back: str = TOKENS) -> Any:
    return client.post(f"{ASKS}?next={back}", {"password": password})


def test_every_guarded_page_requires_the_password_and_changes_no_row(admin: Client) -> None:
    rows = one_of_every_model()
    before = contents_of_every_table()
    guarded = {name: path for name, path in pages(rows) if name in GUARDED}

    answers = {name: admin.post(path, {"post": "yes", "_form_submitted": "True"}) for name, path in guarded.items()}

    assert set(guarded) == GUARDED
    assert {name for name, answer in answers.items() if not answer.headers["Location"].startswith(ASKS)} == set()
    assert differences(before, contents_of_every_table()) == []


def test_every_page_that_changes_tokens_is_guarded() -> None:
    """A page that is added to this panel asks, too, or is named here. Of accounts, all but lists and histories ask."""
    shown = {f"triggers_apitoken_{what}" for what in ("changelist", "history")}
    shown |= {"triggers_apitoken_change", "triggers_apitoken_delete"}  # it shows facts; nothing is deleted
    shown |= {"triggers_apitoken_revoke_token"}  # a token that has leaked is revoked at once

    named = {pattern.name for pattern in site.site._registry[ApiToken].get_urls() if pattern.name}

    assert named - shown == {name for name in PAGES if name.startswith("triggers_apitoken")}
    assert pages_of_accounts() == ("auth_group_", "auth_user_")
    assert set(LISTS) == {"changelist", "history"}


def test_the_list_of_accounts_is_read_without_the_password(admin: Client) -> None:
    assert admin.get("/admin/auth/user/").status_code == 200


def test_the_right_password_leads_on_to_the_page_and_counts_for_a_while(admin: Client) -> None:
    answer = admin.get(TOKENS)
    assert answer.headers["Location"] == f"{ASKS}?next={TOKENS}"
    assert "password" in admin.get(answer.headers["Location"]).content.decode()

    assert give(admin, "x").headers["Location"] == TOKENS
    assert admin.get(TOKENS).status_code == 200
    assert admin.post(TOKENS, TOKEN).status_code == 200
    assert ApiToken.objects.get().name == "ci"
    assert AuditEntry.objects.filter(action="password given", by="admin:ada").count() == 1


def test_a_form_that_is_posted_too_late_changes_nothing_and_shows_a_message(admin: Client) -> None:
    refused = admin.post(TOKENS, TOKEN, follow=True)

    assert not ApiToken.objects.exists()
    assert "Nothing was changed" in refused.content.decode()
    assert refused.redirect_chain == [(f"{ASKS}?next={TOKENS}", 302)]


def test_a_dialog_leads_back_to_the_page_it_was_opened_on(admin: Client) -> None:
    event = one_of_every_model()["triggers_event"]
    opened_on = reverse("admin:triggers_event_change", args=[event.pk])
    headers = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{opened_on}"}

    for method in (admin.get, admin.post):
        answer = method(reverse("admin:triggers_event_erase_event", args=[event.pk]), headers=headers)
        assert answer.headers["HX-Redirect"] == f"{ASKS}?next={opened_on}"


def test_an_invalid_address_leads_back_to_the_guarded_page(admin: Client) -> None:
    answer = admin.get(TOKENS, headers={"HX-Current-URL": "http://[::1"})

    assert answer.headers["Location"] == f"{ASKS}?next={TOKENS}"


def test_the_password_page_redirects_to_no_other_site(admin: Client) -> None:
    assert give(admin, "x", back="https://evil.example/").headers["Location"] == "/admin/"
    assert give(admin, "x", back="//evil.example/").headers["Location"] == "/admin/"


def test_a_fresh_login_counts(db: None) -> None:
    User.objects.create_superuser("eve", password="right")
    client = Client()
    client.post("/admin/login/", {"username": "eve", "password": "right"})

    assert client.get(TOKENS).status_code == 200


def test_a_wrong_password_is_a_failed_login_and_the_brake_stops_guessing(admin: Client) -> None:
    for _ in range(LIMIT):
        assert "Wrong password" in give(admin, "wrong").content.decode()

    assert give(admin, "x").status_code == 429
    assert admin.get(TOKENS).status_code == 302
    assert AuditEntry.objects.filter(action="login failed").count() == 2


def test_the_password_of_another_user_is_no_password(admin: Client) -> None:
    User.objects.create_superuser("eve", password="hers")

    assert give(admin, "hers").status_code == 200
    assert admin.get(TOKENS).status_code == 302


def test_ones_own_password_is_not_guessed_past_the_brake(admin: Client) -> None:
    """Django's form asks for the old password as often as one likes."""
    assert admin.post("/admin/password_change/", {"old_password": "guess"}).headers["Location"].startswith(ASKS)


def test_the_time_is_a_setting(admin: Client, settings: Any) -> None:
    settings.WAKEFUL_PASSWORD_AGAIN = timedelta(minutes=20)

    assert admin.get(TOKENS).status_code == 200


def test_the_page_is_for_staff_who_are_logged_in() -> None:
    assert Client().get(ASKS).headers["Location"].startswith("/admin/login/")


@pytest.mark.chaos
@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_in_a_browser_a_dialog_leads_to_the_password_and_back(
    live_server: LiveServer, page: Page, settings: Any
) -> None:
    event = make_event(data={"said": "a secret"})
    Event.objects.update(dispatched_at=timezone.now())  # one that is still needed is left
    log_in(page, live_server)
    expect(page.get_by_role("link", name="Triggers").first).to_be_visible()
    address = live_server.url + page_of("triggers_event", event)

    page.goto(address)
    page.get_by_role("link", name="Erase").click()
    erase = page.locator("#modal-content").get_by_role("button", name="Erase")
    expect(erase).to_be_visible()
    page.wait_for_load_state("networkidle")
    settings.WAKEFUL_PASSWORD_AGAIN = timedelta(0)  # while the dialog is open
    erase.click()
    expect(page.get_by_text("Nothing was changed")).to_be_visible()
    settings.WAKEFUL_PASSWORD_AGAIN = timedelta(minutes=15)
    page.locator("[name=password]").fill("right")
    page.get_by_role("button", name="Continue").click()
    expect(page).to_have_url(address)
    page.wait_for_load_state("networkidle")  # before that a button is not wired yet
    event.refresh_from_db()
    assert event.payload_removed_at is None

    page.get_by_role("link", name="Erase").click()
    expect(erase).to_be_visible()
    page.wait_for_load_state("networkidle")
    erase.click()
    expect(page.get_by_text("Erased: 1 event")).to_be_visible()
