"""A connection that gives no token, or soon will give none, is a problem with a remedy."""

import re
from datetime import timedelta
from typing import Any

import pytest

from config.health.problems import problems
from config.health.situation import read_situation
from runs.connections.lease import CLOCK
from runs.models import Connection

pytestmark = pytest.mark.django_db


def found(**columns: Any) -> dict[str, tuple[str, str]]:
    Connection.objects.create(name="mail", provider="google", client_id="x")
    Connection.objects.filter(name="mail").update(**columns)
    return {
        one.name: (one.severity, one.text) for one in problems(read_situation()) if one.kind.startswith("connection-")
    }


LIVE: dict[str, Any] = {"state": "connected", "access_token": b"x", "connected_at": CLOCK, "refreshed_at": CLOCK}


def test_a_connection_that_works_or_was_never_connected_is_none() -> None:
    assert not found()
    assert not found_again(**LIVE, expires_at=CLOCK + timedelta(hours=1), refresh_token=b"x")
    assert not found_again(**LIVE, expires_at=CLOCK + timedelta(hours=1), refresh_token=None)
    assert not found_again(state="revoked", access_token=None)


def found_again(**columns: Any) -> dict[str, tuple[str, str]]:
    Connection.objects.all().delete()
    return found(**columns)


def test_one_that_is_refused_is_bad() -> None:
    [(name, (severity, text))] = found(state="refused", reason="the provider answers invalid_grant").items()

    assert (name, severity) == ("connection-ended:mail", "bad")
    assert text == "Connection mail (google) is refused: the provider answers invalid_grant. What uses it fails."


def test_one_that_gets_no_token_says_since_when() -> None:
    [(name, (_, text))] = found(
        **LIVE, failing_since=CLOCK - timedelta(minutes=10), reason="it answers 503", owner="ada"
    ).items()

    assert name == "connection-failing:mail"
    assert re.fullmatch(
        r"Connection mail of ada \(google\) has got no new token for 1\d min( \d+ s)?: it answers 503\.", text
    )


@pytest.mark.parametrize(
    "columns", [{"refresh_token": b"x", "refresh_expires_at": CLOCK + timedelta(days=3)}, {}], ids=["consent", "token"]
)
def test_one_that_nothing_can_renew_is_a_warning_before_its_end(columns: dict[str, Any]) -> None:
    ends = {"expires_at": CLOCK + timedelta(days=3), "refreshed_at": CLOCK - timedelta(days=27)}

    [(name, (severity, text))] = found(**{**LIVE, **ends, **columns}).items()

    assert (name, severity) == ("connection-ends:mail", "warning")
    assert "ends in" in text and "nothing can renew it" in text
