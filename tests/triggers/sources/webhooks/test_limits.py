"""Limits of one source: who may send, how much and how often; and handshakes, which the sender begins."""

import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from tests.support.hooks import add_secret, make_source, post, signed_headers
from triggers.exceptions import Invalid
from triggers.models import DeliveryRate, Event, Redelivery, RefusedDelivery, Source
from triggers.sources.edit import change_source, create_source
from triggers.sources.webhooks.limits import Limits, clean_limits
from triggers.sources.webhooks.proof import MOST_UNPROVED
from triggers.sources.webhooks.scheme import Delivery, Reply, schemes

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.triggers.sources.urls")]


def reasons() -> dict[str, int]:
    return {refused.reason: refused.count for refused in RefusedDelivery.objects.all()}


# --- Who ---


@pytest.mark.parametrize(
    ("address", "networks", "status"),
    [
        ("192.0.2.7", "192.0.2.0/24", 202),
        ("192.0.2.7", "198.51.100.1, 192.0.2.7", 202),
        ("192.0.3.7", "192.0.2.0/24", 403),
        ("::ffff:192.0.2.7", "192.0.2.0/24", 202),
        ("2001:db8::1", "192.0.2.0/24 2001:db8::/32", 202),
        ("", "192.0.2.0/24", 403),
    ],
)
def test_only_allowed_addresses_may_send(address: str, networks: str, status: int) -> None:
    make_source(limits={"networks": networks})

    answer = post(b"{}", signed_headers(b"{}"), REMOTE_ADDR=address)

    assert answer.status_code == status
    assert reasons() == ({} if status == 202 else {"the sender's address is not one of the allowed ones": 1})


def test_behind_a_trusted_proxy_the_address_is_the_forwarded_one(settings: Settings) -> None:
    settings.WAKEFUL_PROXIES, settings.WAKEFUL_PROXY_NETWORKS = 1, ["10.0.0.0/8"]
    make_source(limits={"networks": "192.0.2.7"})
    claim = {"X-Forwarded-For": "192.0.2.7"}

    by_proxy = post(b"{}", signed_headers(b"{}") | claim, REMOTE_ADDR="10.1.2.3")
    forged = post(b"{}", signed_headers(b"{}", id_="d-2") | claim, REMOTE_ADDR="203.0.113.9")

    assert (by_proxy.status_code, forged.status_code) == (202, 403)


def test_behind_a_proxy_that_is_not_named_allowed_addresses_are_refused_and_nothing_is_let_in(
    settings: Settings,
) -> None:
    settings.WAKEFUL_PROXIES = 1
    source = make_source()

    with pytest.raises(Invalid, match="WAKEFUL_PROXY_NETWORKS"):
        change_source(source, {"limits": {"networks": "192.0.2.7"}}, by="test")

    Source.objects.filter(pk=source.pk).update(limits={"networks": "192.0.2.7"})
    assert post(b"{}", signed_headers(b"{}"), REMOTE_ADDR="192.0.2.7").status_code == 503


# --- How much and how often ---


def test_a_body_larger_than_the_sources_limit_is_413() -> None:
    make_source(limits={"max_body": 4})

    answers = [post(body, signed_headers(body, id_=str(len(body)))) for body in (b"1234", b"12345")]

    assert [answer.status_code for answer in answers] == [202, 413]


def test_an_unverified_source_takes_a_megabyte_unless_its_limit_is_higher() -> None:
    """Strangers decide how much is parsed there."""
    body = json.dumps({"text": "x" * MOST_UNPROVED}).encode()
    source = make_source("open", "none", secret=None, settings={"unverified": True})
    assert post(body, {}, "open").status_code == 413

    change_source(source, {"limits": {"max_body": 2 * MOST_UNPROVED}}, by="test")

    assert post(body, {}, "open").status_code == 202


def test_more_deliveries_than_the_limit_wait_for_the_next_minute() -> None:
    source = make_source(limits={"per_minute": 2})
    forged = post(b"{}", signed_headers(b"{}", secret="stranger"))

    answers = [post(b"{}", signed_headers(b"{}", id_=f"d-{number}")) for number in range(4)]

    # A forged delivery takes no turn.
    assert forged.status_code == 401
    assert [answer.status_code for answer in answers] == [202, 202, 503, 503]
    assert 1 <= int(answers[2].headers["Retry-After"]) <= 60
    assert reasons()["more deliveries in a minute than the source takes"] == 2

    DeliveryRate.objects.filter(source=source).update(since="2020-01-01T00:00:00Z")
    assert post(b"{}", signed_headers(b"{}", id_="d-9")).status_code == 202


def test_a_refused_delivery_takes_no_turn_of_a_limit_that_is_raised() -> None:
    source = make_source(limits={"per_minute": 1})
    refused = [post(b"{}", signed_headers(b"{}", id_=f"d-{number}")).status_code for number in range(3)]
    Source.objects.filter(pk=source.pk).update(limits={"per_minute": 3})

    answers = [post(b"{}", signed_headers(b"{}", id_=f"e-{number}")).status_code for number in range(3)]

    assert (refused, answers) == ([202, 503, 503], [202, 202, 503])


def test_a_delivery_during_which_its_source_changes_takes_one_turn() -> None:
    """It is verified again then."""
    source = make_source(limits={"per_minute": 5})
    assert post(b"{}", signed_headers(b"{}", id_="d-1")).status_code == 202
    add_secret(source, "another")

    assert post(b"{}", signed_headers(b"{}", id_="d-2")).status_code == 202
    assert DeliveryRate.objects.get(source=source).count == 2


def test_an_unverified_source_has_a_limit_by_default_which_comes_before_its_deliveries_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Source.objects.create(slug="shop", kind="none", settings={"unverified": True})
    assert post(b"{}", {}).status_code == 202
    assert DeliveryRate.objects.get(source=source).count == 1
    DeliveryRate.objects.update(count=600)

    # What cannot be read takes a turn, too: no sender has proved anything.
    answers = [post(b"{}", {}).status_code for _ in range(2)]
    Source.objects.filter(pk=source.pk).update(limits={"per_minute": 1000})
    answers.append(post(b"{}", {}).status_code)

    assert answers == [503, 503, 202]


@pytest.mark.django_db(transaction=True)
def test_a_source_that_is_deleted_and_made_again_takes_its_next_delivery() -> None:
    """A process that knows the deleted one counts no turn for it."""
    made = {"slug": "shop", "kind": "none", "settings": {"unverified": True}}
    Source.objects.create(**made)
    assert post(b"{}", {}).status_code == 202
    Event.objects.all().delete()
    Source.objects.all().delete()
    again = Source.objects.create(**made)

    assert post(b"{}", {}).status_code == 202
    assert DeliveryRate.objects.get().source == again


def test_a_minute_that_began_in_the_future_is_over() -> None:
    source = make_source(limits={"per_minute": 1})
    DeliveryRate.objects.create(source=source, since="2100-01-01T00:00:00Z", count=1)

    assert post(b"{}", signed_headers(b"{}")).status_code == 202


def test_the_sender_gets_the_status_on_which_it_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    make_source(limits={"per_minute": 1})
    monkeypatch.setattr(type(schemes()["hmac"]), "overloaded", 429)

    assert [post(b"{}", signed_headers(b"{}", id_=str(number))).status_code for number in range(2)] == [202, 429]


# --- Replays ---


def test_a_leaked_body_with_another_id_can_be_a_duplicate() -> None:
    make_source(limits={"equal_bodies": "duplicate"})

    first, again, other = (
        post(body, signed_headers(body, id_=id_)) for body, id_ in ((b"{}", "a"), (b"{}", "b"), (b"[]", "b"))
    )

    assert (again.status_code, again.json()) == (200, {"event": first.json()["event"], "duplicate": True})
    assert (other.status_code, Event.objects.count(), Redelivery.objects.count()) == (202, 2, 1)


def test_a_signed_id_stays_the_id_of_the_event() -> None:
    settings = {"template": "{id}.{body}", "id_header": "X-Id"}
    source = make_source(settings=settings, limits={"equal_bodies": "duplicate"})

    for id_ in ("a", "b"):
        headers = signed_headers(f"{id_}.{{}}".encode(), id_=id_)
        assert post(b"{}", headers).status_code == 202

    assert {event.ce_id for event in Event.objects.filter(source=source)} == {"a", "b"}


# --- Settings ---


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"networks": "example.com"}, "networks"),
        ({"networks": "192.0.2.1/24"}, "networks"),
        ({"max_body": -1}, "max_body"),
        ({"per_minute": True}, "per_minute"),
        ({"per_minute": "5"}, "per_minute"),
        ({"equal_bodies": "hold"}, "equal_bodies"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_at_its_field(limits: dict[str, Any], field: str) -> None:
    with pytest.raises(Invalid, match=f"limits.{field}"):
        create_source("shop", kind="github", settings={}, limits=limits, by="test")

    assert not Source.objects.filter(slug="shop").exists()


def test_a_source_without_limits_costs_no_look_at_them() -> None:
    assert clean_limits({}) is clean_limits({}) == Limits()


# --- Handshakes ---


@dataclass(frozen=True, kw_only=True)
class Heard:
    """The request of a sender, and its answer."""

    method: str
    url: str
    per_minute: int


def test_the_scheme_answers_the_senders_own_questions(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    settings.WAKEFUL_URL = "https://wakeful.example.com"
    make_source(limits={"per_minute": 120})
    requests: list[Heard] = []

    def handshake(scheme: object, delivery: Delivery, *_: object) -> Reply:
        requests.append(Heard(method=delivery.method, url=delivery.url, per_minute=delivery.per_minute))
        origin = delivery.headers["webhook-request-origin"].decode()
        return Reply(headers={"WebHook-Allowed-Origin": origin, "WebHook-Allowed-Rate": str(delivery.per_minute)})

    monkeypatch.setattr(type(schemes()["hmac"]), "handshake", handshake)

    answer = Client().generic("OPTIONS", "/hooks/shop/?q=1", headers={"WebHook-Request-Origin": "sender.example.com"})

    assert answer.status_code == 200
    assert answer.headers["WebHook-Allowed-Origin"] == "sender.example.com"
    assert answer.headers["WebHook-Allowed-Rate"] == "120"
    assert requests == [Heard(method="OPTIONS", url="https://wakeful.example.com/hooks/shop/?q=1", per_minute=120)]


def test_a_scheme_may_take_put(monkeypatch: pytest.MonkeyPatch) -> None:
    make_source()
    monkeypatch.setattr(type(schemes()["hmac"]), "methods", ("POST", "PUT"))

    answers = [
        Client().generic(
            method, "/hooks/shop/", b"{}", "application/json", headers=signed_headers(b"{}"), CONTENT_LENGTH="2"
        )
        for method in ("PUT", "POST", "GET")
    ]

    assert [answer.status_code for answer in answers] == [202, 200, 405]
    assert answers[2].headers["Allow"] == "POST, PUT"


def test_a_greeting_is_answered_as_the_sender_expects_and_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_source()
    add_secret(source, "another")
    monkeypatch.setattr(
        type(schemes()["hmac"]), "greet", lambda scheme, delivery, *_: Reply(body=delivery.body, content_type="text/x")
    )

    answer = post(b"challenge", signed_headers(b"challenge"))

    assert (answer.status_code, answer.content, answer.headers["Content-Type"]) == (200, b"challenge", "text/x")
    assert post(b"challenge", signed_headers(b"forged")).status_code == 401
    assert not Event.objects.exists()
    assert source.secrets.filter(last_matched_at__isnull=False).count() == 1
