import base64
import json
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from tests.support.deliveries import NOW, take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

SECRET = "whsec_" + base64.b64encode(b"a secret of thirty-two bytes ok!").decode()
OLD_SECRET = "whsec_" + base64.b64encode(b"an older one, not yet forgotten!").decode()
BODY = b'{"type":"invoice.paid","timestamp":"2026-11-20T11:59:30.5Z","data":{"id":"inv_7"}}'


def signed_headers(
    body: bytes = BODY, *, id_: str = "msg_1", at: datetime = NOW, secret: str = SECRET, shown: datetime | None = None
) -> dict[str, str]:
    """Headers as the reference library makes them."""
    return {
        "Webhook-Id": id_,
        "Webhook-Timestamp": str(int((shown or at).timestamp())),
        "Webhook-Signature": Webhook(secret).sign(msg_id=id_, timestamp=at, data=body.decode()),
    }


def test_a_delivery_of_the_reference_library_is_accepted_and_described() -> None:
    event = take("standard_webhooks", BODY, signed_headers(), SECRET).event

    assert (event.ce_id, event.type, event.data["data"]) == ("msg_1", "invoice.paid", {"id": "inv_7"})
    assert event.time == NOW - timedelta(seconds=29, milliseconds=500)
    assert event.headers["webhook-signature"] == "[redacted]"


@given(
    body=st.text(st.characters(exclude_categories=["Cs"])).map(str.encode),
    id_=st.text(st.characters(codec="ascii", min_codepoint=33, exclude_characters="."), min_size=1),
    key=st.binary(min_size=1, max_size=64),
)
def test_signatures_of_the_reference_library_are_accepted(body: bytes, id_: str, key: bytes) -> None:
    secret = "whsec_" + base64.b64encode(key).decode()

    receipt = take("standard_webhooks", body, signed_headers(body, id_=id_, secret=secret), secret)

    assert receipt.event.body == body


@pytest.mark.parametrize("secret", [SECRET, SECRET.rstrip("="), SECRET.removeprefix("whsec_")])
def test_a_secret_works_as_senders_show_it(secret: str) -> None:
    assert take("standard_webhooks", BODY, signed_headers(), secret).secret


def test_during_rotation_either_secret_proves_and_the_matching_one_is_recorded() -> None:
    by_old = take("standard_webhooks", BODY, signed_headers(secret=OLD_SECRET), SECRET, OLD_SECRET)
    by_new = take("standard_webhooks", BODY, signed_headers(secret=SECRET), SECRET, OLD_SECRET)

    assert by_old.secret and by_new.secret
    assert (by_old.secret.id, by_new.secret.id) == (2, 1)


def test_one_of_several_signatures_is_enough() -> None:
    headers = signed_headers()
    headers["Webhook-Signature"] = f"v1a,abc v1,bm90IHRoaXMgb25l {headers['Webhook-Signature']} v2,xyz"

    assert take("standard_webhooks", BODY, headers, SECRET).secret


@pytest.mark.parametrize("seconds", [-300, 300])
def test_five_minutes_off_is_still_fresh(seconds: int) -> None:
    assert take("standard_webhooks", BODY, signed_headers(at=NOW + timedelta(seconds=seconds)), SECRET).secret


def rejected(headers: dict[str, str], reason: str, body: bytes = BODY) -> None:
    with pytest.raises(Rejected, match=reason):
        take("standard_webhooks", body, headers, SECRET)


@pytest.mark.parametrize("seconds", [-301, 301, -(10**9)])
def test_an_old_or_future_delivery_is_rejected(seconds: int) -> None:
    rejected(signed_headers(at=NOW + timedelta(seconds=seconds)), "off$")


def test_a_changed_body_is_rejected() -> None:
    rejected(signed_headers(), "no live secret matches", body=BODY + b" ")


def test_a_changed_id_is_rejected() -> None:
    rejected(signed_headers() | {"Webhook-Id": "msg_2"}, "no live secret matches")


def test_a_changed_timestamp_is_rejected() -> None:
    rejected(signed_headers(shown=NOW + timedelta(seconds=1)), "no live secret matches")


def test_an_id_with_a_full_stop_is_rejected_though_it_is_signed() -> None:
    rejected(signed_headers(id_="msg.1"), "full stop")


def test_another_secret_is_rejected() -> None:
    rejected(signed_headers(secret=OLD_SECRET), "no live secret matches")


@pytest.mark.parametrize(
    "timestamp", ["", "1e9", "1763640000.0", "+1763640000", "-1", "１７６３６４００００", "9" * 12, "nan"]
)
def test_a_timestamp_that_is_no_plain_number_is_rejected(timestamp: str) -> None:
    rejected(signed_headers() | {"Webhook-Timestamp": timestamp}, "whole number")


@pytest.mark.parametrize("header", ["Webhook-Id", "Webhook-Timestamp", "Webhook-Signature"])
def test_a_missing_header_is_rejected(header: str) -> None:
    headers = signed_headers()
    del headers[header]

    rejected(headers, "missing|no live secret")


@pytest.mark.parametrize("signature", ["v1", "v1,", ",", "v1,%%%", "v1,\x00", "v1a," + "A" * 88, "", "v1 " + "A" * 44])
def test_malformed_signatures_are_rejected(signature: str) -> None:
    rejected(signed_headers() | {"Webhook-Signature": signature}, "no live secret")


def test_a_flood_of_signatures_is_rejected_before_any_is_compared() -> None:
    headers = signed_headers()
    headers["Webhook-Signature"] = " ".join(["v1,AAAA"] * 16 + [headers["Webhook-Signature"]])

    rejected(headers, "more than 16")


def test_a_signature_of_another_version_is_rejected() -> None:
    headers = signed_headers()
    headers["Webhook-Signature"] = headers["Webhook-Signature"].replace("v1,", "v2,")

    rejected(headers, "no live secret")


def test_a_source_without_secrets_accepts_nothing() -> None:
    with pytest.raises(Rejected, match="no live secret"):
        take("standard_webhooks", BODY, signed_headers())


def test_a_body_that_is_no_json_is_kept_raw_and_named_by_its_id() -> None:
    body = b'{"type": "invoice.paid", "type": "invoice.void"}'

    event = take("standard_webhooks", body, signed_headers(body), SECRET).event

    assert (event.ce_id, event.type, event.data, event.body) == ("msg_1", "webhook.received", None, body)
    assert "duplicate name" in event.data_error


def test_a_type_that_is_no_name_is_not_used() -> None:
    body = json.dumps({"type": ["x"], "timestamp": "yesterday"}).encode()

    event = take("standard_webhooks", body, signed_headers(body), SECRET).event

    assert (event.type, event.time) == ("webhook.received", None)


def test_a_fresh_secret_is_valid_and_the_reference_library_reads_it() -> None:
    scheme = schemes()["standard_webhooks"]
    secret = scheme.new_secret()

    assert scheme.clean_secret(f" {secret}\n") == secret
    assert take("standard_webhooks", BODY, signed_headers(secret=secret), secret).secret


@pytest.mark.parametrize(
    ("secret", "problem"), [("whsec_???", "base64"), ("whsec_c2hvcnQ=", "has 5"), ("", "has 0"), ("ü", "base64")]
)
def test_a_secret_that_cannot_work_is_refused_with_a_reason(secret: str, problem: str) -> None:
    with pytest.raises(InvalidSettings, match=problem):
        schemes()["standard_webhooks"].clean_secret(secret)
