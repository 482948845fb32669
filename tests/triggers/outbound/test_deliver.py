"""Events at real receivers: signed, repeated, given up, and no receiver delays another."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ValidationError
from django.db.models.functions import Now
from standardwebhooks import Webhook

from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.encryption import encrypt
from runs.db.sql import database_now
from runs.network.breakers import Breaker
from runs.network.sending import NO_WORD, Result
from runs.network.signing import key_of, new_secret
from tests.support.deliveries import take
from tests.support.outbound import SECRET, dispatched, make_due, sent, statuses, subscribe
from tests.support.post_office import HookServer, taking_hooks
from tests.support.stack import PATIENCE
from tests.support.triggers import make_event
from triggers.models import EventDelivery, Subscription
from triggers.outbound import deliver
from triggers.outbound.deliver import Outbound, Tried, claim, endpoint_of, expire, job_of, record, send
from triggers.outbound.edit import change_subscription, create_subscription, remove_subscription
from triggers.outbound.secrets import rotate
from triggers.sources.cloudevents.format import read_message
from triggers.sources.http.headers import Headers
from triggers.sources.secrets import keys_in_use, reencrypt

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def here(settings: Any) -> None:
    settings.WAKEFUL_OUTBOUND_NETWORKS = ["127.0.0.0/8"]


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with taking_hooks() as server:
        yield server


def one() -> EventDelivery:
    return EventDelivery.objects.get()


def test_a_log_line_about_a_delivery_has_no_secret() -> None:
    subscription = subscribe("https://example.com/hooks/path-that-is-secret")
    make_event(data={"name": "Ada"})
    dispatched()
    claimed = claim(subscription.pk)
    assert claimed

    text = str(job_of(claimed, endpoint_of(subscription.pk)))

    assert str(claimed.id) in text
    assert "path-that-is-secret" not in text and repr(key_of(SECRET)) not in text and "Ada" not in text


def test_a_receiver_verifies_a_cloudevent(hook: HookServer) -> None:
    subscribe(hook.url)
    event = make_event(data={"name": "Ada ☂", "exact": 12345678901234567890.5}, subject="ada")

    sent()

    [posted] = hook.posted
    Webhook(SECRET).verify(posted.body, posted.headers)
    [read] = read_message(Headers(posted.headers), posted.body).events
    assert (read.id, read.source, read.type, read.subject) == (event.ce_id, "cli:test", "visitor.came", "ada")
    assert read.data == event.data and read.time == event.received_at
    assert read.extensions == {"wakefulid": str(event.pk), "wakefulsource": "cli", "wakefuldepth": 1}
    assert (
        posted.headers["webhook-id"] == one().webhook_id
        and posted.headers["content-type"] == "application/cloudevents+json"
    )
    assert one().status == "delivered" and one().tries[0]["status"] == 204


def test_a_body_that_is_no_json_leaves_as_it_came(hook: HookServer) -> None:
    subscribe(hook.url)
    make_event(body=b"\xff\xfe", data_error="kept raw", headers={"content-type": "image/png"})

    sent()

    body = json.loads(hook.posted[0].body)
    assert (body["data_base64"], body["datacontenttype"]) == ("//4=", "image/png")


def test_an_event_that_comes_back_goes_on_counting(hook: HookServer) -> None:
    subscribe(hook.url)
    make_event(depth=3)
    sent()

    [posted] = hook.posted
    back = take("standard_webhooks", posted.body, posted.headers, SECRET, at=database_now())
    relayed = {name: value for name, value in posted.headers.items() if name != "wakeful-depth"}

    assert back.event.depth == 4
    assert take("standard_webhooks", posted.body, relayed, SECRET, at=database_now()).event.depth == 4
    forged = take("standard_webhooks", posted.body, {**relayed, "wakeful-depth": "-1e9"}, SECRET, at=database_now())
    assert forged.event.depth == 0


# Attempts that fail


def test_a_failed_delivery_is_repeated_with_the_same_id_and_shows_every_attempt(hook: HookServer) -> None:
    hook.manner, hook.says = "later", b"try again, \0 " + SECRET.encode() + b"x" * 1000
    subscription = subscribe(hook.url)
    make_event()
    sent()

    failed = one()
    pause = (failed.due_at or database_now()) - database_now()
    assert (failed.status, failed.reason) == ("pending", "it answered 503")
    assert timedelta(seconds=3) < pause < timedelta(seconds=7)
    assert failed.tries[0]["answer"].startswith("try again, \ufffd [secret]x") and len(failed.tries[0]["answer"]) <= 500
    subscription.refresh_from_db()
    assert subscription.failing_since and subscription.error == "it answered 503"

    hook.manner, hook.says = "take", b""
    make_due()
    sent(Outbound())
    subscription.refresh_from_db()
    assert [attempt["status"] for attempt in one().tries] == [503, 204] and one().status == "delivered"
    assert len(set(hook.ids)) == 1 and len(hook.ids) == 2
    assert subscription.failing_since is None and subscription.error == ""


def test_a_long_retry_after_stops_no_subscription_for_a_day() -> None:
    outbound = Outbound()
    subscription = subscribe()
    make_event()
    dispatched()
    claimed = claim(subscription.pk)
    assert claimed
    job = job_of(claimed, endpoint_of(subscription.pk))
    assert job
    tried = Tried(at=database_now(), status=503, error="it answered 503", after=timedelta(days=1))

    outbound._tell_breaker(Result(job=job, outcome=tried, host="one"))

    assert 590 < outbound.breakers.opened["one"].retry_in <= 600


def test_retry_after_is_honoured(hook: HookServer) -> None:
    hook.manner = "greylist"  # 7 s
    subscribe(hook.url)
    make_event()
    outbound = sent()

    due = one().due_at
    assert due and due - database_now() > timedelta(seconds=6)
    make_event()
    sent(outbound)
    assert len(hook.posted) == 1  # the others wait as well


@pytest.mark.parametrize(("manner", "why"), [("redirect", "a redirect"), ("hang up", ""), ("cut", "")])
def test_whatever_is_no_2xx_is_repeated(hook: HookServer, manner: Any, why: str) -> None:
    hook.manner = manner
    subscribe(hook.url)
    make_event()

    sent()

    assert one().status == "pending" and one().reason and why in one().reason


def test_the_tenth_attempt_is_the_last(hook: HookServer) -> None:
    hook.close()
    subscribe(hook.url)
    make_event()
    dispatched()
    EventDelivery.objects.update(attempts=9)

    sent()

    assert one().status == "failed" and "given up after 10 attempts" in one().reason


def test_status_410_disables_the_subscription_and_is_a_problem(hook: HookServer) -> None:
    hook.manner = "refuse"
    subscription = subscribe(hook.url)
    for _ in range(20):
        make_event()

    sent()

    subscription.refresh_from_db()
    assert not subscription.enabled and "410" in subscription.disabled_reason
    assert statuses() == ["failed"] * 20 and len(hook.posted) <= deliver.MOST_AT_ONCE
    [problem] = [one for one in problems(read_situation()) if one.name == "subscription-disabled:shop"]
    assert problem.severity == "bad" and "410" in problem.text and problem.remedy

    change_subscription(subscription, {"enabled": True}, by="test")
    assert not [one for one in problems(read_situation()) if one.name.startswith("subscription-")]


def test_days_without_a_success_disable_the_subscription(hook: HookServer) -> None:
    hook.manner = "later"
    subscription = subscribe(hook.url)
    make_event()
    sent()
    Subscription.objects.update(failing_since=Now() - timedelta(days=4))
    make_due()
    sent()
    [problem] = [one for one in problems(read_situation()) if one.name == "subscription-failing:shop"]
    assert problem.is_alarm and Subscription.objects.get().enabled

    Subscription.objects.update(failing_since=Now() - timedelta(days=6))
    make_due()
    sent()

    subscription.refresh_from_db()
    assert not subscription.enabled and "5 d" in subscription.disabled_reason
    assert statuses() == ["failed"]


def test_an_address_inside_is_refused_unless_its_network_is_allowed(hook: HookServer, settings: Any) -> None:
    settings.WAKEFUL_OUTBOUND_NETWORKS = []
    subscribe(hook.url)
    make_event()

    sent()

    assert hook.connections == 0 and "127.0.0.1, which is not a public one" in one().reason


def test_an_event_that_is_too_large_fails_at_once(hook: HookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.outbound.body.LARGEST", 1000)
    subscribe(hook.url)
    make_event(data={"text": "x" * 1000})

    sent()

    assert hook.posted == [] and one().status == "failed" and "1,0" in one().reason


# One receiver and the others


def test_a_subscription_that_cannot_be_read_stops_no_other(hook: HookServer) -> None:
    broken, whole = subscribe(hook.url, slug="broken"), subscribe(hook.url, slug="whole")
    Subscription.objects.filter(pk=broken.pk).update(ciphertext=encrypt(b"\xff"))  # no text
    make_event()

    sent()

    assert len(hook.posted) == 1
    assert EventDelivery.objects.get(subscription=whole).status == "delivered"
    assert EventDelivery.objects.get(subscription=broken).status == "pending"
    broken.refresh_from_db()
    assert broken.error == "its URL or a secret cannot be read: UnicodeDecodeError"


def test_a_silent_receiver_delays_no_other(hook: HookServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hook.manner = "silent"
    subscribe(hook.url, "silent")
    with taking_hooks() as quick:
        subscribe(quick.url, "quick")
        outbound = Outbound()
        for _ in range(20):
            make_event()
        dispatched()

        give_up_at = time.monotonic() + PATIENCE
        while len(quick.posted) < 20:
            outbound.deliver_some()
            assert time.monotonic() < give_up_at, (statuses(), outbound.breakers)
            time.sleep(0.005)

        assert len(hook.posted) <= deliver.MOST_AT_ONCE
        assert set(statuses(name="silent")) == {"pending", "sending"}
    hook.gate.set()
    hook.close()


def test_receivers_that_are_slow_or_fail_occupy_at_most_half_of_the_threads() -> None:
    outbound = Outbound()
    sending = outbound.sending
    sending.slow = {"a", "b"}
    outbound.breakers.opened["c"] = Breaker()
    for host in "aaabbbcc":
        outbound.breakers.began(host)
        sending.under_way += 1

    assert sending.refusing == ["a", "b", "c"]
    sending.under_way = deliver.THREADS - sending.reserved
    outbound.breakers.began("d")
    assert "d" in sending.refusing and sending.has_room  # the last threads are for those that have nothing under way


# Processes that die


def test_a_claim_whose_process_died_is_sent_again_with_the_same_id(hook: HookServer) -> None:
    subscription = subscribe(hook.url)
    make_event()
    dispatched()
    claimed = claim(subscription.pk)
    assert claimed and (job := job_of(claimed, endpoint_of(subscription.pk)))
    tried = send(job)  # and the process dies before it records that
    assert claim(subscription.pk) is None

    make_due()
    assert expire() == 1
    sent()

    assert hook.ids == [one().webhook_id] * 2
    assert one().status == "delivered" and one().attempts == 2
    assert [attempt.get("error") for attempt in one().tries] == [NO_WORD, ""]
    assert not record(claimed, tried)  # another claim was first


def test_a_late_answer_counts_while_no_one_else_has_claimed(hook: HookServer) -> None:
    subscription = subscribe(hook.url)
    make_event()
    dispatched()
    claimed = claim(subscription.pk)
    assert claimed
    make_due()
    expire()

    assert record(claimed, Tried(at=database_now(), status=200))
    assert one().status == "delivered"


def test_a_delivery_that_ends_every_process_is_given_up() -> None:
    subscription = subscribe()
    make_event()
    dispatched()
    for _ in range(10):
        make_due()
        assert claim(subscription.pk)
        make_due()
        expire()

    assert one().status == "failed" and one().reason == NO_WORD


# Secrets


def test_two_secrets_sign_until_the_old_one_ends(hook: HookServer) -> None:
    subscription = subscribe(hook.url)
    new = rotate(subscription, grace=timedelta(hours=1), by="test")
    make_event()
    sent()
    newest = rotate(subscription, grace=timedelta(), by="test")
    make_event()
    sent()

    first, second = hook.posted
    for secret in (SECRET, new):
        Webhook(secret).verify(first.body, first.headers)
    Webhook(newest).verify(second.body, second.headers)
    assert len(first.headers["webhook-signature"].split()) == 2
    assert len(second.headers["webhook-signature"].split()) == 1


def test_a_secret_is_bounded_in_number_and_checked() -> None:
    subscription = subscribe()
    for _ in range(4):
        rotate(subscription, by="test")

    with pytest.raises(ValidationError, match="5 secrets"):
        rotate(subscription, by="test")
    with pytest.raises(ValidationError, match="whsec_"):
        rotate(subscription, secret="short", grace=timedelta(), by="test")
    assert rotate(subscription, secret=(mine := new_secret()), grace=timedelta(), by="test") == mine


def test_a_new_key_encrypts_its_url_and_secrets(hook: HookServer, settings: Any) -> None:
    subscribe(hook.url)
    old, new = settings.WAKEFUL_ENCRYPTION_KEYS[0], Fernet.generate_key().decode()
    settings.WAKEFUL_ENCRYPTION_KEYS = [new, old]
    assert reencrypt(by="test") == 2

    settings.WAKEFUL_ENCRYPTION_KEYS = [new]
    assert keys_in_use().only_first
    make_event()
    sent()
    assert one().status == "delivered"

    settings.WAKEFUL_ENCRYPTION_KEYS = [old]
    assert keys_in_use().unreadable == ["subscription shop"]
    make_event()
    sent()
    assert "no key in WAKEFUL_ENCRYPTION_KEYS" in EventDelivery.objects.get(status="pending").reason


# What operators do


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("slug", "a b"),
        ("slug", "shop"),
        ("url", "ftp://example.com/"),
        ("url", "https://user:password@example.com/"),
        ("url", "https://example.com/#part"),
        ("types", []),
        ("types", ["a b"]),
        ("sources", ["x" * 300]),
        ("filter", "event.data.amount >"),
        ("secret", "hunter2"),
    ],
)
def test_a_fault_stands_at_its_field(field: str, value: Any) -> None:
    subscribe()
    values: dict[str, Any] = {"slug": "other", "url": "https://example.com/x", "types": ["*"], field: value}

    with pytest.raises(ValidationError) as fault:
        create_subscription(values.pop("slug"), **values, by="test")

    assert set(fault.value.message_dict) == {field}


def test_waiting_deliveries_fail_when_their_subscription_is_disabled_or_deleted(hook: HookServer) -> None:
    hook.close()
    subscription = subscribe(hook.url)
    other = subscribe(hook.url, "other")
    make_event()
    sent()
    assert statuses() == ["pending", "pending"]  # for a later attempt

    change_subscription(subscription, {"enabled": False}, by="test")
    remove_subscription(other, by="test")

    assert dict(EventDelivery.objects.values_list("name", "reason")) == {
        "shop": "the subscription is disabled",
        "other": "the subscription was deleted",
    }
    assert statuses() == ["failed", "failed"] and sent().sending.under_way == 0


def test_the_path_of_a_url_is_stored_encrypted_and_not_shown() -> None:
    subscription = subscribe("https://example.com:8443/very-secret-path?token=hush")

    assert subscription.address == "https://example.com:8443/…"
    assert b"very-secret-path" not in bytes(subscription.ciphertext)
    assert urlsplit(subscription.address).hostname == "example.com"
