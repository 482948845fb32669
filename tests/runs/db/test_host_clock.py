"""Signatures are made and checked by the database's clock, whatever the host's own says."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from runs.db import host_clock
from runs.db.sql import database_now
from runs.models import Worker
from runs.network.signing import new_secret
from runs.processes.lease import Clock, Presence
from tests.support.hooks import make_source, post
from triggers.sources.webhooks.scheme import schemes

MINUTES = [-10, 10]
SECOND = timedelta(seconds=1)


@pytest.fixture(autouse=True)
def unknown() -> Iterator[None]:
    host_clock.forget()
    yield
    host_clock.forget()


@pytest.fixture(params=MINUTES)
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wall clock of this process is minutes off."""
    off, real = timedelta(minutes=request.param), time.time

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.fromtimestamp(real(), tz) + off

    monkeypatch.setattr(time, "time", lambda: real() + off.total_seconds())
    monkeypatch.setattr(timezone, "now", lambda: datetime.fromtimestamp(real(), UTC) + off)
    monkeypatch.setattr(host_clock, "datetime", Wrong)


def delivery(secret: str) -> tuple[bytes, dict[str, str]]:
    """As a sender whose clock is right signs it."""
    scheme = schemes()["standard_webhooks"]
    settings = scheme.clean_settings({})
    sample = scheme.sample(settings)
    assert sample
    signed = scheme.signed(sample, secret.encode(), database_now(), settings)
    return signed.body, dict(signed.headers)


def test_it_is_the_hosts_own_time_as_long_as_the_databases_is_not_known() -> None:
    assert abs(host_clock.now() - datetime.now(UTC)) < SECOND


def test_it_goes_on_from_the_databases_time() -> None:
    host_clock.note(datetime(2001, 1, 1, tzinfo=UTC).timestamp(), took=0.01)

    first, second = host_clock.now(), host_clock.now()

    assert datetime(2001, 1, 1, tzinfo=UTC) <= first <= second < datetime(2001, 1, 1, 0, 10, tzinfo=UTC)


def test_an_answer_that_took_long_says_nothing_of_the_time() -> None:
    host_clock.note(0.0, took=30.0)

    assert host_clock.now().year > 2000


def test_a_clock_that_is_set_back_during_a_statement_says_nothing_of_the_time() -> None:
    clock = Clock()

    clock.compare(before=100.0, database=100.5, after=90.0)  # the answer may have taken any time

    assert not clock.is_wrong
    assert host_clock.now().year > 2000


def test_what_was_read_long_ago_counts_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    host_clock.note(0.0, took=0.01)
    steady = host_clock.steady
    monkeypatch.setattr(host_clock, "steady", lambda: steady() + host_clock.HOLDS)

    assert host_clock.now().year > 2000


@pytest.mark.django_db
@pytest.mark.usefixtures("wrong_clock")
def test_a_host_whose_clock_is_minutes_off_takes_signed_deliveries() -> None:
    secret = new_secret()
    make_source(kind="standard_webhooks", secret=secret)
    body, headers = delivery(secret)
    assert post(body, headers).status_code == 401  # as long as it has not asked the database

    Presence(Worker.Kind.WEB).renew()

    assert post(body, headers).status_code == 202
