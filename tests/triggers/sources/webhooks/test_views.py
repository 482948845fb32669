from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries, Settings

from tests.support.examples import some_of
from tests.support.hooks import SECRET, add_secret, make_source, post, signed_headers
from triggers.models import Event, Redelivery, Secret, Source
from triggers.sources import backlog
from triggers.sources.webhooks import door, endpoint
from triggers.sources.webhooks.scheme import schemes

pytestmark = [pytest.mark.sampled, pytest.mark.django_db, pytest.mark.urls("tests.triggers.sources.urls")]


# --- What is recorded and answered ---


def test_a_signed_delivery_is_recorded_and_answered_with_its_id() -> None:
    source = make_source()
    body = b'{"total": 12.5}'

    answer = post(body, signed_headers(body))

    assert answer.status_code == 202
    event = Event.objects.get()
    assert answer.json() == {"event": str(event.id), "duplicate": False}
    assert (event.source, event.ce_source, event.ce_id, event.type) == (source, "/hooks/shop/", "d-1", "order.paid")
    assert (event.data, bytes(event.body or b""), event.data_error) == ({"total": 12.5}, body, "")
    assert event.headers is not None and event.headers["x-signature"] == "[redacted]"
    assert event.dispatched_at is None


def test_a_sender_that_reads_the_answer_to_an_event_gets_the_one_it_expects(settings: Settings) -> None:
    settings.WAKEFUL_URL = "https://wakeful.example.com"
    make_source("sms", "twilio", settings={})
    scheme = schemes()["twilio"]
    cleaned = scheme.clean_settings({})
    sample = scheme.sample(cleaned)
    assert sample
    sent = scheme.signed(
        replace(sample, url="https://wakeful.example.com/hooks/sms/"), SECRET.encode(), timezone.now(), cleaned
    )

    answers = [post(sent.body, dict(sent.headers), "sms") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert (answers[0].content, answers[0]["Content-Type"]) == (b"<Response/>", "text/xml")
    assert Event.objects.get().type == "message.received"


def test_the_same_delivery_again_is_a_duplicate_of_the_first() -> None:
    make_source()
    first = post(b"{}", signed_headers(b"{}"))

    again = post(b"{}", signed_headers(b"{}"))

    assert (again.status_code, again.json()) == (200, {"event": first.json()["event"], "duplicate": True})
    assert Event.objects.count() == 1
    assert Redelivery.objects.get().differs is False


def test_the_same_id_with_another_body_is_flagged() -> None:
    make_source()
    first = post(b"{}", signed_headers(b"{}"))

    again = post(b"[]", signed_headers(b"[]"))

    assert (again.status_code, again.json()) == (200, {"event": first.json()["event"], "duplicate": True})
    assert Redelivery.objects.get().differs is True
    assert Event.objects.get().data == {}


def test_the_same_id_at_another_source_is_another_event() -> None:
    make_source("shop")
    make_source("store")

    answers = [post(b"{}", signed_headers(b"{}"), slug) for slug in ("shop", "store")]

    assert [answer.status_code for answer in answers] == [202, 202]


@pytest.mark.parametrize("body", [b"{", b'"\\u0000"', b"[1e999]", b"\xff\x00", b"[" * 10_000, b'{"a":1,"a":2}', b""])
def test_a_signed_body_that_cannot_be_kept_as_json_is_kept_raw(body: bytes) -> None:
    make_source()

    answer = post(body, signed_headers(body))

    event = Event.objects.get()
    assert answer.status_code == 202
    assert (event.data, bytes(event.body or b"")) == (None, body)
    assert event.data_error.startswith("kept raw: ") or not body


@given(
    body=st.binary(max_size=200),
    headers=st.dictionaries(
        st.from_regex(r"\AX-[A-Za-z0-9-]{1,8}\Z") | st.sampled_from(["X-Id", "X-Type"]),
        st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")),
    ),
)
@examples(max_examples=some_of(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_accepted_event_can_be_stored(body: bytes, headers: dict[str, str]) -> None:
    source, _ = Source.objects.get_or_create(
        slug="open", kind="none", settings={"unverified": True, "id_header": "X-Id", "type_header": "X-Type"}
    )

    answer = post(body, headers, "open")

    assert answer.status_code in (200, 202)
    event = Event.objects.get(pk=answer.json()["event"])
    assert (event.source, answer.json()["duplicate"] or bytes(event.body or b"") == body) == (source, True)


def test_the_longest_names_fit_the_index() -> None:
    make_source()
    longest = "".join(chr(0x20000 + number * 37) for number in range(255))

    answer = post(b"{}", signed_headers(b"{}") | {"X-Id": longest.encode().decode("latin-1")})

    assert answer.status_code == 202
    assert Event.objects.get().ce_id == longest


# --- What is refused ---


@pytest.mark.parametrize("change", [{"X-Signature": "0" * 64}, {"X-Signature": ""}, {"X-Signature": "ÿ"}])
def test_a_bad_signature_is_401_without_detail(change: dict[str, str]) -> None:
    make_source()

    answer = post(b"{}", signed_headers(b"{}") | change)

    assert (answer.status_code, answer.json()) == (401, {})
    assert "WWW-Authenticate" in answer.headers
    assert not Event.objects.exists()


def test_an_unknown_a_disabled_and_another_kind_of_source_are_404() -> None:
    make_source("off", enabled=False)
    make_source("tok", kind="api", secret=None)

    for slug in ("nowhere", "off", "tok", "schedule", "manual"):
        answer = post(b"{}", signed_headers(b"{}"), slug)
        assert (slug, answer.status_code, answer.json()) == (slug, 404, {"detail": "Not found."})


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
def test_only_post_is_allowed(method: str) -> None:
    make_source()

    answer = Client().generic(method, "/hooks/shop/", b"{}")

    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "extra",
    [
        {"CONTENT_LENGTH": ""},
        {"CONTENT_LENGTH": "-1"},
        {"CONTENT_LENGTH": "1e3"},
        {"HTTP_TRANSFER_ENCODING": "chunked"},
    ],
)
def test_a_body_of_unknown_length_is_411(extra: dict[str, str]) -> None:
    make_source()

    assert post(b"{}", signed_headers(b"{}"), **extra).status_code == 411


@pytest.mark.parametrize("length", ["11", "9" * 5000])
def test_a_body_too_large_is_413_before_it_is_read(length: str, settings: Settings) -> None:
    settings.WAKEFUL_MAX_BODY = 10
    make_source()

    assert post(b"{}", signed_headers(b"{}"), CONTENT_LENGTH=length).status_code == 413


def test_one_sources_backlog_closes_that_source_alone(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.WAKEFUL_MAX_SOURCE_BACKLOG = 20
    make_source("shop")
    make_source("store")
    make_source("open", "none", secret=None, settings={"unverified": True})
    for slug, count in (("shop", 21), ("open", 3)):
        for number in range(count):
            assert post(b"{}", signed_headers(b"{}", id_=f"d-{number}"), slug).status_code == 202
    monkeypatch.setattr(backlog, "_backlog", backlog.NEVER)

    answers = {slug: post(b"{}", signed_headers(b"{}", id_="d-99"), slug) for slug in ("shop", "open", "store")}

    assert {slug: answer.status_code for slug, answer in answers.items()} == {"shop": 503, "open": 503, "store": 202}
    assert answers["shop"].headers["Retry-After"] == "5"


@pytest.mark.parametrize("step", ["read_endpoint", "accept_verified"])
def test_a_database_that_is_down_is_503(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_source()

    def down(*_: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(door, step, down)

    answer = post(b"{}", signed_headers(b"{}"))

    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


def test_a_source_that_is_set_up_wrong_is_503_so_that_nothing_is_lost() -> None:
    make_source(settings={"algorithm": "md5"})

    assert post(b"{}", signed_headers(b"{}")).status_code == 503


def test_secrets_that_no_key_opens_are_503_so_that_nothing_is_lost() -> None:
    source = make_source(secret=None)
    Secret.objects.create(source=source, ciphertext=b"of an installation long gone")

    assert post(b"{}", signed_headers(b"{}")).status_code == 503

    add_secret(source, SECRET)
    assert post(b"{}", signed_headers(b"{}")).status_code == 202


# --- How senders may come ---


@pytest.mark.parametrize("accept", ["text/plain", "application/xml", "", "image/*;q=x", "ÿ"])
def test_no_accept_header_costs_an_event(accept: str) -> None:
    make_source()

    answer = post(b"{}", signed_headers(b"{}") | {"Accept": accept})

    assert (answer.status_code, answer.headers["Content-Type"]) == (202, "application/json")


def test_the_final_slash_may_be_missing() -> None:
    make_source()

    answer = Client().generic("POST", "/hooks/shop", b"{}", "application/json", headers=signed_headers(b"{}"))

    assert answer.status_code == 202


def test_no_csrf_token_is_needed() -> None:
    make_source()
    client = Client(enforce_csrf_checks=True)

    answer = client.generic(
        "POST", "/hooks/shop/", b"{}", "application/x-www-form-urlencoded", headers=signed_headers(b"{}")
    )

    assert answer.status_code == 202


def test_an_authorization_header_is_the_schemes_business() -> None:
    make_source("hook", "bearer")

    assert post(b"{}", {"Authorization": f"Bearer {SECRET.replace(' ', '')}"}, "hook").status_code == 401


# --- Secrets ---


def test_only_live_secrets_verify_a_delivery() -> None:
    source = make_source(secret=None)
    now = timezone.now()
    add_secret(source, "expired", not_before=now - timedelta(days=2), not_after=now - timedelta(seconds=5))
    add_secret(source, "not yet", not_before=now + timedelta(hours=1))
    add_secret(source, "old", not_after=now + timedelta(hours=1))
    add_secret(source, "new")

    statuses = {
        secret: post(b"{}", signed_headers(b"{}", secret, id_=secret)).status_code
        for secret in ("expired", "not yet", "old", "new")
    }

    assert statuses == {"expired": 401, "not yet": 401, "old": 202, "new": 202}


def test_the_secret_that_matched_is_noted_once_a_minute() -> None:
    source = make_source()
    other = add_secret(source, "another")
    post(b"{}", signed_headers(b"{}"))
    secret = source.secrets.exclude(pk=other.pk).get()
    first = secret.last_matched_at
    assert first is not None

    post(b"{}", signed_headers(b"{}", id_="d-2"))
    secret.refresh_from_db()
    assert secret.last_matched_at == first

    Secret.objects.filter(pk=secret.pk).update(last_matched_at=first - timedelta(minutes=2))
    endpoint.kept.clear()  # each process remembers when it has noted it
    post(b"{}", signed_headers(b"{}", id_="d-3"))
    secret.refresh_from_db()
    other.refresh_from_db()
    assert secret.last_matched_at is not None and secret.last_matched_at >= first
    assert other.last_matched_at is None


def test_one_query_finds_the_source_and_its_secrets(django_assert_num_queries: DjangoAssertNumQueries) -> None:
    source = make_source()
    for number in range(5):
        add_secret(source, f"secret {number}")

    with django_assert_num_queries(1):
        found = endpoint.find_endpoint("shop")

    assert (found.id, len(found.secrets)) == (source.id, 6)
