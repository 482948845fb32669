"""A process keeps what it has read of a source. Whatever changes there, in another process, holds for the very next delivery.

The ORM changes the rows here as another process does: the door is not notified."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.support.hooks import SECRET, add_secret, make_source, post, signed_headers
from triggers.models import Event, Redelivery, RefusedDelivery, Secret, Source
from triggers.sources.webhooks import door, endpoint
from triggers.sources.webhooks.kept import Kept
from triggers.sources.webhooks.receive import receive
from triggers.sources.webhooks.scheme import Reply, schemes

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.triggers.sources.urls")]
READ, INSERT = "FROM triggers_source source LEFT JOIN triggers_secret", "INSERT INTO triggers_event"


def deliver(id_: str, secret: str = SECRET, body: bytes = b"{}") -> int:
    status: int = post(body, signed_headers(body, secret, id_=id_)).status_code
    return status


@contextmanager
def statements() -> Iterator[list[str]]:
    """Those of the door: what it reads of the source, and what it writes."""
    found: list[str] = []
    with CaptureQueriesContext(connection) as captured:
        yield found
    found += [one["sql"] for one in captured if "pg_notify" not in one["sql"] and "RECURSIVE waiting" not in one["sql"]]


@pytest.fixture
def shop() -> Source:
    """A source that this process knows."""
    source = make_source()
    assert deliver("first") == 202
    return source


# --- What it saves ---


def test_a_further_delivery_is_one_statement(shop: Source) -> None:
    with statements() as sent:
        assert deliver("second") == 202

    [insert] = sent
    assert INSERT in insert


def test_a_duplicate_is_found_without_reading_the_source(shop: Source) -> None:
    with statements() as sent:
        assert deliver("first") == 200

    assert not any(READ in one for one in sent)
    assert Redelivery.objects.get().count == 1


# --- What has changed meanwhile ---


def rename(source: Source) -> None:
    Source.objects.filter(pk=source.pk).update(slug="store")


def replace_by_another(source: Source) -> None:
    """Of the same name, with another secret."""
    rename(source)
    make_source(secret="of the other one")


CHANGES: dict[str, tuple[Callable[[Source], object], int]] = {
    "revoked": (lambda source: source.secrets.all().delete(), 401),
    "expired": (lambda source: source.secrets.update(not_after=timezone.now() - timedelta(seconds=1), not_before="2020-01-01T00:00Z"), 401),
    "not yet valid": (lambda source: source.secrets.update(not_before=timezone.now() + timedelta(hours=1)), 401),
    "disabled": (lambda source: Source.objects.filter(pk=source.pk).update(enabled=False), 404),
    "renamed": (rename, 404),
    "another source of its name": (replace_by_another, 401),
    "another kind": (lambda source: Source.objects.filter(pk=source.pk).update(kind="github", settings={}), 401),
    "another header": (lambda source: Source.objects.filter(pk=source.pk).update(settings={"header": "X-Other"}), 401),
    "settings that are wrong": (lambda source: Source.objects.filter(pk=source.pk).update(settings={"header": 1}), 503),
    "another address": (lambda source: Source.objects.filter(pk=source.pk).update(limits={"networks": "192.0.2.7"}), 403),
    "smaller bodies": (lambda source: Source.objects.filter(pk=source.pk).update(limits={"max_body": 1}), 413),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("id_", ["second", "first"])  # the first is a duplicate, which is not logged either
def test_what_is_no_longer_allowed_lets_nothing_in(change: str, id_: str, shop: Source) -> None:
    make, status = CHANGES[change]
    make(shop)

    assert deliver(id_) == status
    assert Event.objects.count() == 1
    assert not Redelivery.objects.exists()


def test_a_secret_that_expires_by_itself_lets_nothing_in(shop: Source) -> None:
    """Nothing is written when its time has come: the database's clock decides."""
    secret = shop.secrets.get()
    Secret.objects.filter(pk=secret.pk).update(not_after=timezone.now() + timedelta(hours=1))
    assert deliver("second") == 202
    known = endpoint.kept.get("shop")

    Secret.objects.filter(pk=secret.pk).update(not_before="2020-01-01T00:00Z", not_after="2020-01-02T00:00Z")
    assert endpoint.kept.get("shop") is known

    assert deliver("third") == 401


def test_a_new_secret_and_a_source_enabled_again_are_good_at_once(shop: Source) -> None:
    assert deliver("second", "the new one") == 401
    add_secret(shop, "the new one")
    assert deliver("second", "the new one") == 202

    Source.objects.filter(pk=shop.pk).update(enabled=False)
    assert deliver("third") == 404
    Source.objects.filter(pk=shop.pk).update(enabled=True)
    assert deliver("third") == 202


def test_a_limit_that_was_lifted_refuses_nothing(shop: Source) -> None:
    Source.objects.filter(pk=shop.pk).update(limits={"max_body": 4, "networks": "192.0.2.7"})
    assert deliver("second", body=b"[1,2,3]") == 403
    Source.objects.filter(pk=shop.pk).update(limits={"max_body": 4})
    assert deliver("second", body=b"[1,2,3]") == 413
    Source.objects.filter(pk=shop.pk).update(limits={})

    assert deliver("second", body=b"[1,2,3]") == 202


def test_a_setting_that_names_the_event_otherwise_holds_at_once(shop: Source) -> None:
    Source.objects.filter(pk=shop.pk).update(settings={"id_path": "id", "type_header": "X-Type"})

    assert deliver("second", body=b'{"id": "of the body"}') == 202
    assert Event.objects.filter(ce_id="of the body").exists()


def test_secrets_encrypted_with_another_key_are_read_again_and_still_good(shop: Source) -> None:
    before = shop.secrets.get()
    Secret.objects.filter(pk=before.pk).update(ciphertext=add_secret(make_source("other"), SECRET).ciphertext)

    assert deliver("second") == 202


def test_a_challenge_is_answered_for_a_secret_that_is_still_valid_alone(
    shop: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(schemes()["hmac"]), "greet", lambda scheme, delivery, *_: Reply(body=delivery.body))
    Secret.objects.update(last_matched_at=None)
    endpoint.kept.clear()
    assert deliver("second") == 200
    assert Secret.objects.get().last_matched_at is not None
    Secret.objects.update(not_before="2020-01-01T00:00Z", not_after="2020-01-02T00:00Z", last_matched_at=None)

    assert deliver("third") == 401
    assert Secret.objects.get().last_matched_at is None


def test_a_source_that_changes_while_its_delivery_is_verified_is_asked_again(
    shop: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time it is read, it has changed before the event is recorded: the sender tries again later."""
    readings: list[int] = []

    def changing(*given: Any, **named: Any) -> Any:
        readings.append(1)
        Source.objects.filter(pk=shop.pk).update(limits={"max_body": 1000 + len(readings)})
        return receive(*given, **named)

    monkeypatch.setattr(door, "receive", changing)

    assert deliver("second") == 503
    assert len(readings) == 1 + door.READINGS
    assert Event.objects.count() == 1
    monkeypatch.setattr(door, "receive", receive)
    assert deliver("second") == 202


def test_what_is_refused_is_verified_once_and_counted_once(shop: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counted(*given: Any, **named: Any) -> Any:
        calls.append(1)
        return receive(*given, **named)

    monkeypatch.setattr(door, "receive", counted)

    assert deliver("second", "of a stranger") == 401

    assert len(calls) == 1
    assert [refused.count for refused in RefusedDelivery.objects.all()] == [1]


# --- What bounds it ---


def test_the_endpoints_used_last_are_kept() -> None:
    kept: Kept[int] = Kept(2)
    for number, slug in enumerate(["a", "b"]):
        kept.keep(slug, number)
    assert kept.get("a") == 0
    kept.keep("c", 2)

    assert [kept.get(slug) for slug in ("a", "b", "c")] == [0, None, 2]


def test_one_that_another_thread_has_read_meanwhile_is_not_replaced() -> None:
    kept: Kept[list[int]] = Kept(2)
    old, new = [0], [1]
    kept.keep("a", new)
    kept.replace("a", old, [2])
    assert kept.get("a") is new
    kept.replace("a", new, old)
    assert kept.get("a") is old


def test_strangers_make_nothing_be_kept() -> None:
    assert post(b"{}", signed_headers(b"{}"), "nowhere").status_code == 404

    assert endpoint.kept.get("nowhere") is None
