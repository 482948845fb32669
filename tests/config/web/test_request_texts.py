"""No answer shows whether a text of the request is a secret."""

import json
from typing import Any

import pytest
from django.test import Client

from agents.kernel import redaction
from agents.kernel.redaction import MARK, redacted, shown
from config.secrets import know_secrets, secrets_of_environment
from tests.support.api import Api
from tests.support.console import list_of
from tests.support.hooks import make_source
from tests.support.secrets import forgotten
from tests.support.triggers import make_event

__all__ = ["forgotten"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("forgotten")]
SECRET = 'Summer-2026 "house" \\ & more'
GUESS = 'Winter-2025 "house" \\ & less'


@pytest.fixture(autouse=True)
def known(forgotten: None) -> None:
    redaction.know(SECRET, "wakeful.Summer-2026")


def twice(answer: Any) -> None:
    """The answers to a secret and to another text differ in nothing but that text."""
    of_secret, of_other = answer(SECRET), answer(GUESS)
    assert MARK not in of_secret
    assert len(of_secret) == len(of_other)


def test_the_page_of_the_login() -> None:
    def answer(guess: str) -> str:
        client = Client()
        return client.post("/admin/login/", {"username": f"{guess} {guess}", "password": ""}).content.decode()

    twice(answer)
    assert "Summer-2026" in answer(SECRET)


@pytest.mark.parametrize("noun", ["runs_recipient", "triggers_source", "runs_notification"])
def test_a_search_field_shows_the_query_as_it_was_typed(admin_client: Client, noun: str) -> None:
    twice(lambda guess: admin_client.get(list_of(noun), {"q": guess}).content.decode())


def test_an_event_that_is_searched_for(admin_client: Client) -> None:
    make_event(subject=SECRET)
    assert MARK in admin_client.get(list_of("triggers_event")).content.decode()

    page = admin_client.get(list_of("triggers_event"), {"subject": SECRET}).content.decode()

    assert MARK not in page and page.count("Summer-2026") >= 2


@pytest.mark.parametrize("is_escaped", [False, True])
def test_a_text_in_an_api_request_comes_back_as_it_was(is_escaped: bool) -> None:
    api = Api()

    def answer(guess: str, key: str) -> str:
        text = "".join(f"\\u{ord(one):04x}" for one in guess) if is_escaped else json.dumps(guess)[1:-1]
        body = f'{{"agent": "a", "key": "{key}", "text": "{text}"}}'
        made = api.client.post("/api/v1/memory/", body, content_type="application/json")
        assert made.status_code == 201, made.content
        return str(made.json()["text"])

    assert (answer(SECRET, "1"), answer(GUESS, "2")) == (SECRET, GUESS)
    assert MARK in json.dumps(api.get("memory/").body)


def test_an_error_of_the_api() -> None:
    api = Api()

    twice(lambda guess: json.dumps(api.post("schedules/preview/", {"tz": guess, guess: 1}).body))
    twice(lambda guess: json.dumps(api.get("events/", type=guess, source=guess, cursor=guess).body))


def test_the_answer_of_a_webhook() -> None:
    make_source("open", "none", secret=None, settings={"unverified": True, "type_header": "X-Type"})

    def answer(type: str) -> str:
        sent = Client().post("/hooks/open/", "{}", content_type="application/json", headers={"X-Type": type})
        assert sent.status_code == 400, sent.content
        return sent.content.decode()

    assert answer("wakeful.Summer-2026").replace("Summer-2026", "Winter-2025") == answer("wakeful.Winter-2025")


def test_a_value_that_an_expression_puts_together() -> None:
    make_event(type="order.paid", data={"note": "hello", "leaked": SECRET})
    redaction.know("Autumn-2024-xyz")
    api = Api()

    def tried(expression: str) -> str:
        body = {"types": ["order.paid"], "input": {"a": expression}}
        [event] = api.post("triggers/try/", body).body["events"]
        return str(event["input"]["a"])

    assert tried('"Autumn-" + "2024-xyz"') == '"Autumn-2024-xyz"'
    assert MARK in tried("event.data.leaked")


def test_the_password_of_people_is_not_confirmed_by_what_they_see_but_stored_and_logged_nowhere(settings: Any) -> None:
    settings.WAKEFUL_ADMIN_PASSWORD = "of-the-admin-2026"
    know_secrets()

    assert redacted("it is of-the-admin-2026") == f"it is {MARK}"
    assert shown("it is of-the-admin-2026") == "it is of-the-admin-2026"


def test_a_password_in_any_address_of_the_environment_is_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://corp:pr0xy%2Dpassw0rd@proxy.example:3128")
    monkeypatch.setenv("SOME_PLACE", "amqp://app:br0ker-passw0rd@mq.example/")

    assert {"pr0xy%2Dpassw0rd", "pr0xy-passw0rd", "br0ker-passw0rd"} <= set(secrets_of_environment())
