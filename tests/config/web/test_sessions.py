"""A login that is not used ends, and no login lasts for ever."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from config.web.sessions import LONGEST

pytestmark = pytest.mark.django_db
PAGE = "/admin/auth/user/"


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("ada", password="x"))
    assert client.get(PAGE).status_code == 200
    return client


def hours_pass(client: Client, hours: float, *names: str) -> None:
    session = client.session
    for name in names:
        session[name] = session[name] - timedelta(hours=hours).total_seconds()
    session.save()


def test_a_login_that_is_not_used_ends(client: Client) -> None:
    hours_pass(client, 9, "seen")

    assert client.get(PAGE).status_code == 302


def test_a_login_that_is_used_goes_on(client: Client) -> None:
    hours_pass(client, 7, "seen", "began")
    assert client.get(PAGE).status_code == 200
    hours_pass(client, 7, "seen", "began")

    assert client.get(PAGE).status_code == 200


def test_a_page_that_looks_again_by_itself_is_no_use_of_the_login(client: Client) -> None:
    hours_pass(client, 7, "seen")
    client.get(PAGE, headers={"HX-Request": "true"})

    assert client.session["seen"] < time.time() - 6 * 3600


def test_no_login_lasts_longer_than_a_week(client: Client) -> None:
    hours_pass(client, LONGEST.total_seconds() / 3600 + 1, "began")

    assert client.get(PAGE).status_code == 302


def test_the_session_is_not_written_at_every_look(client: Client, django_assert_num_queries: Any) -> None:
    before = client.session["seen"]
    client.get(PAGE)

    assert client.session["seen"] == before
