"""Dead man's switches: what a ping is answered and recorded as, and which pings are refused."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from tests.support.hooks import add_secret, make_source
from tests.support.switches import data_of, episodes, later, make_switch, timer, work
from tests.support.triggers import make_event
from triggers.models import Event, RefusedDelivery, Source
from triggers.sources import backlog
from triggers.sources.edit import change_source
from triggers.sources.kind import Waits
from triggers.sources.secrets import rotate
from triggers.sources.settings import InvalidSettings
from triggers.sources.switches.ping import KEPT
from triggers.sources.webhooks.scheme import schemes
from triggers.sources.webhooks.test_event import send_test_event

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.triggers.sources.urls")]
TOKEN = "t0ken-of-the-backup"


def make_backup(**settings: Any) -> Source:
    source = make_switch("backup", kind="ping", **settings)
    add_secret(source, TOKEN)
    return source


def ping(signal: str = "", *, method: str = "GET", token: str = TOKEN, body: bytes = b"", slug: str = "backup") -> Any:
    return Client().generic(method, f"/ping/{slug}/{token}{signal}", body, "text/plain")


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT"])
def test_a_ping_by_any_method_is_recorded_and_answered_with_ok(method: str) -> None:
    backup = make_backup()

    answer = ping(method=method)

    assert (answer.status_code, answer.content) == (200, b"" if method == "HEAD" else b"OK")
    event = Event.objects.get()
    assert (event.source, event.type, data_of()["method"]) == (backup, "ping.success", method)


@pytest.mark.parametrize(
    ("signal", "type", "code"),
    [
        ("/", "ping.success", None),
        ("/start", "ping.start", None),
        ("/fail", "ping.fail", None),
        ("/log", "ping.log", None),
        ("/0", "ping.success", 0),
        ("/1/", "ping.fail", 1),
        ("/255", "ping.fail", 255),
    ],
)
def test_the_address_shows_what_a_ping_means(signal: str, type: str, code: int | None) -> None:
    make_backup()

    assert ping(signal).status_code == 200

    event = Event.objects.get()
    assert (event.type, data_of().get("exit_code")) == (type, code)


@pytest.mark.parametrize("signal", ["/256", "/stop", "/start/now"])
def test_an_address_that_means_nothing_is_not_found(signal: str) -> None:
    make_backup()

    assert ping(signal).status_code == 404
    assert not Event.objects.exists()


def test_the_beginning_of_a_body_is_kept_as_text() -> None:
    make_backup()

    ping(method="POST", body=b"lost \xff\x00 " + b"x" * 2 * KEPT)

    event = Event.objects.get()
    assert data_of()["body"].startswith("lost \ufffd\ufffd ") and len(bytes(event.body or b"")) == KEPT


def test_each_ping_is_an_event_of_its_own() -> None:
    make_backup()

    for _ in range(2):
        ping(method="POST", body=b"same")

    assert Event.objects.count() == 2


def test_a_wrong_token_is_refused_and_counted_and_the_address_of_hooks_takes_none() -> None:
    make_backup()

    wrong, unknown = ping(token="another-token-of-it"), ping(slug="nowhere")
    assert (wrong.status_code, wrong.content) == (unknown.status_code, unknown.content) == (404, unknown.content)
    assert wrong.headers.keys() == unknown.headers.keys()
    assert Client().post("/hooks/backup/", b"{}", "application/json").status_code == 401

    assert not Event.objects.exists()
    assert sorted(RefusedDelivery.objects.values_list("reason", flat=True)) == [
        "no live secret matches",
        "the address has no token",
    ]


def test_a_token_is_rotated_as_other_secrets_are_and_the_old_one_stays_valid_for_a_while() -> None:
    backup = make_backup()

    token = rotate(backup, by="test")

    assert [ping(token=token).status_code, ping().status_code] == [200, 200]


def test_a_disabled_switch_and_another_kind_of_source_take_no_pings() -> None:
    backup = make_backup()
    change_source(backup, {"enabled": False}, by="test")
    add_secret(Source.objects.create(slug="shop", kind="hmac", settings={"id_header": "X-Id"}), TOKEN)

    assert [ping().status_code, ping(slug="shop").status_code] == [404, 404]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("none", {"unverified": True}), ("bearer", {}), ("hmac", {"header": "X", "template": "{body}"})],
)
def test_a_source_of_another_kind_records_nothing_at_the_address_of_a_ping(kind: str, settings: Any) -> None:
    make_source("shop", kind, secret=TOKEN if kind != "none" else None, settings=settings)

    answer = Client().post(
        f"/ping/shop/{TOKEN}", b"{}", "application/json", headers={"Authorization": f"Bearer {TOKEN}"}
    )

    assert answer.status_code == 404
    assert not Event.objects.exists()


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Purpose": "prefetch;prerender"},
        {"Purpose": "prefetch"},
        {"X-Moz": "prefetch"},
        {"X-Purpose": "preview"},
        {"User-Agent": "Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)"},
        {"User-Agent": "Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)"},
    ],
)
@pytest.mark.parametrize("method", ["get", "head"])
def test_a_link_that_is_looked_at_ahead_is_no_ping(headers: dict[str, str], method: str) -> None:
    make_backup()

    answer = getattr(Client(), method)(f"/ping/backup/{TOKEN}", headers=headers)

    assert (answer.status_code, answer["Cache-Control"]) == (503, "no-store")
    assert not Event.objects.exists()
    assert Client().get(f"/ping/backup/{TOKEN}", headers={"User-Agent": "curl/8.5"}).status_code == 200


def test_pings_over_the_limit_per_minute_get_429_with_retry_after() -> None:
    backup = make_backup()
    change_source(backup, {"limits": {"per_minute": 1}}, by="test")

    answers = [ping(), ping()]

    assert [answer.status_code for answer in answers] == [200, 429]
    assert "Retry-After" in answers[1]


def test_a_ping_is_taken_although_the_events_of_other_senders_wait(settings: Settings) -> None:
    settings.WAKEFUL_MAX_BACKLOG = settings.WAKEFUL_MAX_SOURCE_BACKLOG = 10
    make_backup()
    shop = Source.objects.create(slug="shop", kind="github")
    for _ in range(11):
        make_event(source_id=shop.pk)
    backlog._backlog = backlog.NEVER

    assert backlog.backlog_exceeded(shop.pk, Waits.SENDER)
    assert ping().status_code == 200


def test_a_job_that_has_started_overruns_also_when_the_period_is_edited_meanwhile() -> None:
    backup = make_backup(every="1d", grace="1h")
    ping("/start")
    work()
    change_source(backup, {"settings": {"every": "7d", "grace": "30m"}}, by="test")
    later(timedelta(minutes=31))
    work()

    assert data_of(type="absence.opened")["reason"] == "overran"


def test_a_failed_job_opens_the_switch_at_once_and_the_next_success_closes_it() -> None:
    make_backup()
    ping("/start")
    ping("/1")
    work()
    ping()
    work()

    assert [type for type, _ in episodes("backup")] == [
        "ping.start", "ping.fail", "absence.opened", "ping.success", "absence.closed",
    ]  # fmt: skip
    opened = Event.objects.get(type="absence.opened")
    assert data_of(pk=opened.pk)["reason"] == "failed" and opened.depth == 1
    assert opened.cause_event_id == Event.objects.get(type="ping.fail").pk


def test_a_test_event_is_a_ping_through_the_real_door(settings: Settings) -> None:
    settings.WAKEFUL_URL = "https://wakeful.example.com"
    backup = make_backup()

    trial = send_test_event(backup, by="test")

    assert trial.status == 202 and trial.event_id
    assert Event.objects.get(pk=trial.event_id).type == "ping.success"


def test_a_test_event_of_a_switch_shows_that_it_has_opened_and_leaves_it_as_it_is() -> None:
    orders = make_switch()

    trial = send_test_event(orders, by="test")

    event = Event.objects.get(pk=trial.event_id or "")
    assert (event.type, event.source, data_of()["episode"]) == ("absence.opened", orders, 0)
    assert timer().state == "waiting"


@pytest.mark.parametrize(
    ("kind", "settings", "field"),
    [
        ("ping", {"every": "soon"}, "every"),
        ("ping", {"grace": "0s"}, "grace"),
        ("ping", {"active_hours": "nine to five"}, "active_hours"),
        ("ping", {"active_zone": "Mars"}, "active_zone"),
        ("absence", {}, "types"),
        ("absence", {"types": "paid", "filter": "event.data.amount >"}, "filter"),
        ("absence", {"types": "paid", "key": "event.dat.order"}, "key"),
        ("absence", {"types": "paid", "of_filter": "true"}, "of_filter"),
        ("absence", {"types": "paid", "within": "600d"}, "within"),
        ("absence", {"types": "paid", "active_hours": "mon 09:00-09:01", "within": "30d"}, "active_hours"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_field(kind: str, settings: dict[str, Any], field: str) -> None:
    from triggers.sources.kind import kinds

    with pytest.raises(InvalidSettings) as refused:
        kinds()[kind].clean_settings({"types": "", **settings} if kind == "absence" else settings)

    assert list(refused.value.errors) == [field]


def test_a_token_that_could_not_travel_in_an_address_is_refused() -> None:
    with pytest.raises(InvalidSettings):
        schemes()["ping"].clean_secret("a/b and more than 16")
