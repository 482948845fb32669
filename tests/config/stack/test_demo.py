import re
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from agents.library.invoice_chaser import overdue
from config.stack.access import Login, ensure_admin
from config.stack.demo import load_demo
from triggers.models import Event, Secret, Source

pytestmark = pytest.mark.django_db


def test_the_printed_request_is_accepted_and_its_repetition_is_a_duplicate(client: Client) -> None:
    curl = load_demo().curl

    first, second = paste(client, curl), paste(client, curl)

    assert (first.status_code, second.status_code) == (202, 200)
    assert first.json()["event"] == second.json()["event"]
    assert Event.objects.get().type == "order.placed"


def test_the_requests_of_the_durable_demo_can_be_pasted_too(client: Client) -> None:
    demo = load_demo()

    assert [paste(client, curl).status_code for curl in (demo.refund, demo.returned)] == [202, 202]
    assert list(Event.objects.order_by("seq").values_list("type", "data__order")) == [
        ("refund.requested", "A-1001"),
        ("parcel.returned", "A-1001"),
    ]


def test_the_request_of_the_invoice_chaser_finds_an_overdue_invoice(client: Client) -> None:
    assert paste(client, load_demo().chase).status_code == 202
    assert overdue(timezone.now().date().isoformat()) == ["I-1001"]


def test_every_start_prints_a_new_delivery_of_the_same_source(client: Client) -> None:
    first, second = load_demo().curl, load_demo().curl

    assert paste(client, first).status_code == paste(client, second).status_code == 202
    assert Secret.objects.filter(source__slug="demo").count() == 1


def test_a_printed_request_cannot_be_repeated_under_another_id(client: Client) -> None:
    curl = load_demo().curl
    first = paste(client, curl)

    again = paste(client, curl.replace(" -d ", f" -H 'X-Delivery-Id: {uuid4()}' -d "))

    assert (again.status_code, again.json()["event"]) == (200, first.json()["event"])


def test_the_demo_of_an_earlier_version_goes_on(client: Client) -> None:
    load_demo()
    source = Source.objects.get(slug="demo")
    del source.settings["id_path"]
    source.save()

    assert paste(client, load_demo().curl).status_code == 202


def test_a_lost_encryption_key_gets_the_demo_a_new_secret(client: Client, settings: Any) -> None:
    load_demo()
    settings.WAKEFUL_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]

    assert paste(client, load_demo().curl).status_code == 202


def test_the_admin_can_log_in_with_the_printed_password(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAKEFUL_ADMIN_PASSWORD")
    password = ensure_admin().password

    assert client.login(username="admin", password=password)


def test_a_password_changed_by_hand_stays_unless_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    ensure_admin()
    admin = User.objects.get(username="admin")
    admin.set_password("chosen by hand")
    admin.save()

    monkeypatch.delenv("WAKEFUL_ADMIN_PASSWORD")
    assert ensure_admin().password == "(the one you set)"
    monkeypatch.setenv("WAKEFUL_ADMIN_PASSWORD", "said")
    ensure_admin()
    assert User.objects.get(username="admin").check_password(settings.WAKEFUL_ADMIN_PASSWORD)


def test_the_password_is_printed_when_it_is_set_and_later_only_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WAKEFUL_ADMIN_PASSWORD")
    first, again = ensure_admin().password, ensure_admin().password

    assert first == settings.WAKEFUL_ADMIN_PASSWORD
    assert again == f"(WAKEFUL_ADMIN_PASSWORD in {settings.WAKEFUL_HOME / 'env'})"


def test_a_password_that_the_environment_sets_is_never_printed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WAKEFUL_ADMIN_PASSWORD", settings.WAKEFUL_ADMIN_PASSWORD)

    assert ensure_admin() == ensure_admin() == Login(name="admin", password="(WAKEFUL_ADMIN_PASSWORD)")
    assert client.login(username="admin", password=settings.WAKEFUL_ADMIN_PASSWORD)


def paste(client: Client, curl: str) -> Any:
    """What the shell would make of the printed line."""
    match = re.fullmatch(r"curl -i http://[^/]+(\S+) (.*) -d '([^']*)'", curl)
    assert match
    path, flags, body = match.groups()
    headers = dict(header.split(": ", 1) for header in re.findall(r"-H '([^']*)'", flags))
    return client.post(path, body, content_type=headers.pop("Content-Type"), headers=headers)
