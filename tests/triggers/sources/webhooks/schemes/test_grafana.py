import hashlib
import hmac
import json
from datetime import timedelta

import pytest

from tests.support.deliveries import NOW, take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Receipt
from triggers.sources.webhooks.scheme import schemes

SECRET = "secret"
SIGNATURE, TIME = "X-Grafana-Alerting-Signature", "X-Grafana-Alerting-Timestamp"
TIMED = {"timestamp_header": TIME}
SECONDS = str(int(NOW.timestamp()))
BODY = json.dumps(
    {
        "receiver": "wakeful",
        "status": "resolved",
        "orgId": 1,
        "alerts": [{"status": "resolved", "fingerprint": "c6eadffa33fcdf37", "startsAt": "2026-11-20T09:51:03+02:00"}],
        "groupLabels": {"alertname": "High memory usage"},
        "version": "1",
        "groupKey": '{}:{alertname="High memory usage"}',
        "state": "ok",
    }
).encode()


def mac(content: bytes, secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()


def timed(seconds: str = SECONDS, body: bytes = BODY) -> dict[str, str]:
    return {SIGNATURE: mac(f"{seconds}:".encode() + body), TIME: seconds}


def take_timed(headers: dict[str, str], body: bytes = BODY) -> Receipt:
    return take("grafana", body, headers, SECRET, settings=TIMED)


def test_the_signatures_of_grafanas_own_test_are_accepted() -> None:
    """HMACs of TestHMACRoundTripper in grafana/alerting: secret “secret”, body “test message”, and a clock at 0."""
    body, at_zero = b"test message", NOW - timedelta(seconds=NOW.timestamp())
    plain = "3bcebf43c85d20bba6e3b6ba278af1d2ba3ab0d57de271b0ad30b833e851c5a6"

    assert mac(body) == plain
    assert take("grafana", body, {SIGNATURE: plain}, SECRET).event.data_error
    assert take("grafana", body, timed("0", body), SECRET, settings=TIMED, at=at_zero).event.type == "alert.received"


def test_a_notification_is_an_event_like_one_of_alertmanager() -> None:
    event = take_timed(timed()).event

    assert (event.type, event.subject) == ("alert.resolved", "High memory usage")
    assert event.headers[SIGNATURE.lower()] == "[redacted]"


def test_a_retry_has_the_id_of_the_first_try_although_it_is_signed_again() -> None:
    later = str(int(NOW.timestamp()) + 60)

    assert take_timed(timed()).event.ce_id == take_timed(timed(later)).event.ce_id


@pytest.mark.parametrize(
    "headers",
    [
        timed() | {SIGNATURE: ""},
        timed() | {SIGNATURE: mac(BODY)},
        timed() | {SIGNATURE: mac(f"{SECONDS}:".encode() + BODY, "other")},
        timed() | {SIGNATURE: f"sha256={timed()[SIGNATURE]}"},
        timed() | {SIGNATURE: f"{timed()[SIGNATURE]}, {timed()[SIGNATURE]}"},
        timed() | {SIGNATURE: "ÿ"},
        timed() | {TIME: str(int(SECONDS) + 1)},
        timed() | {TIME: f"{SECONDS}, {SECONDS}"},
        timed() | {TIME: ""},
        timed(str(int(SECONDS) - 301)),
        timed(str(int(SECONDS) + 301)),
        timed(f"{SECONDS}000"),
    ],
)
def test_a_wrong_signature_or_time_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Rejected):
        take_timed(headers)


@pytest.mark.parametrize("body", [BODY[:-1], BODY + b"\n", BODY.decode().encode("utf-16"), b""])
def test_another_body_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected, match="no live secret matches"):
        take_timed(timed(), body)


def test_a_signature_with_a_timestamp_is_rejected_where_the_source_expects_none() -> None:
    with pytest.raises(Rejected):
        take("grafana", BODY, timed(), SECRET)


def test_a_secret_is_kept_to_the_letter() -> None:
    assert schemes()["grafana"].clean_secret(" spaced ") == " spaced "
    with pytest.raises(InvalidSettings, match="must not be empty"):
        schemes()["grafana"].clean_secret("")
