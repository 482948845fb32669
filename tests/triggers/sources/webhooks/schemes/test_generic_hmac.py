import base64
import hmac
from datetime import timedelta
from typing import Any

import pytest

from tests.support.deliveries import NOW, take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Receipt
from triggers.sources.webhooks.scheme import schemes

SECRET = "a shared secret"
BODY = b'{"id":"evt_9","kind":"door.opened","at":{"list":[{"n":3}]}}'
TIMESTAMP = str(int(NOW.timestamp()))


def mac(content: bytes, algorithm: str = "sha256", secret: str = SECRET) -> str:
    return hmac.new(secret.encode(), content, algorithm).hexdigest()


def take_hmac(headers: dict[str, str], *, body: bytes = BODY, secret: str = SECRET, **settings: object) -> Receipt:
    return take("hmac", body, headers, secret, settings=settings)


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
@pytest.mark.parametrize("prefix", ["", "sha=", "v0="])
def test_each_algorithm_is_verified_in_hex_of_either_case(algorithm: str, prefix: str) -> None:
    signature = mac(BODY, algorithm)

    for shown in (signature, signature.upper()):
        assert take_hmac({"X-Signature": prefix + shown}, algorithm=algorithm, prefix=prefix).secret


@pytest.mark.parametrize("algorithm", ["sha1", "sha256", "sha512"])
def test_each_algorithm_is_verified_in_base64(algorithm: str) -> None:
    digest = hmac.digest(SECRET.encode(), BODY, algorithm)

    receipt = take_hmac(
        {"X-Sum": base64.b64encode(digest).decode()}, algorithm=algorithm, encoding="base64", header="X-Sum"
    )

    assert receipt.secret
    assert receipt.event.headers["x-sum"] == "[redacted]"


def test_a_signed_timestamp_is_part_of_the_text_and_must_be_fresh() -> None:
    settings: dict[str, Any] = {"template": "v0:{timestamp}:{body}", "timestamp_header": "X-Time", "prefix": "v0="}
    headers = {"X-Time": TIMESTAMP, "X-Signature": "v0=" + mac(b"v0:%b:%b" % (TIMESTAMP.encode(), BODY))}

    assert take_hmac(headers, **settings).secret
    with pytest.raises(Rejected, match="off"):
        take("hmac", BODY, headers, SECRET, settings=settings, at=NOW + timedelta(minutes=6))
    with pytest.raises(Rejected, match="whole number"):
        take_hmac(headers | {"X-Time": ""}, **settings)
    with pytest.raises(Rejected, match="no live secret"):
        take_hmac(headers | {"X-Time": str(int(TIMESTAMP) + 1)}, **settings)


def test_a_signed_id_must_be_there_and_hold_no_separator() -> None:
    settings: dict[str, Any] = {
        "template": "v0:{id}.{timestamp}.{body}",
        "timestamp_header": "X-Time",
        "id_header": "X-Id",
    }
    content = b"v0:v0:1.%b.%b" % (TIMESTAMP.encode(), BODY)
    headers = {"X-Id": "v0:1", "X-Time": TIMESTAMP, "X-Signature": mac(content)}

    assert take_hmac(headers, **settings).event.ce_id == "v0:1"
    with pytest.raises(Rejected, match="X-Id is missing"):
        take_hmac(headers | {"X-Id": ""}, **settings)
    with pytest.raises(Rejected, match="contains one of"):
        take_hmac(headers | {"X-Id": f"v0:1.{TIMESTAMP}"}, **settings)


def test_id_and_type_come_from_the_fields_in_the_settings() -> None:
    headers = {"X-Signature": mac(BODY), "X-Delivery": "d-1", "X-Topic": "door"}

    by_body = take_hmac(headers, id_path="id", id_header="X-Delivery", type_path="kind", type_header="X-Topic").event
    by_header = take_hmac(headers, id_path="no.such", id_header="X-Delivery", type_header="X-Topic").event
    in_a_list = take_hmac(headers, id_path="at.list.0.n").event

    assert (by_body.ce_id, by_body.type) == ("evt_9", "door.opened")
    assert (by_header.ce_id, by_header.type) == ("d-1", "door")
    assert (in_a_list.ce_id, in_a_list.type) == ("3", "webhook.received")


@pytest.mark.parametrize("path", ["at", "at.list", "at.list.1.n", "at.list.x", "at.list.99999999999999999999", "id.id"])
def test_a_path_that_leads_to_no_name_is_no_id(path: str) -> None:
    assert take_hmac({"X-Signature": mac(BODY)}, id_path=path).event.ce_id != "3"


def test_an_id_too_long_or_unprintable_is_kept_as_its_hash() -> None:
    headers = {"X-Signature": mac(BODY)}

    long = take_hmac(headers | {"X-Id": "a" * 256}, id_header="X-Id").event.ce_id
    strange = take_hmac(headers | {"X-Id": "a\x01\x00"}, id_header="X-Id").event.ce_id

    assert long.startswith("sha256:") and strange.startswith("sha256:")
    assert long != strange
    assert take_hmac(headers | {"X-Id": "a" * 256}, id_header="X-Id").event.ce_id == long


def test_without_an_id_every_delivery_is_a_new_event_unless_chosen_otherwise() -> None:
    headers = {"X-Signature": mac(BODY)}

    assert take_hmac(headers).event.ce_id != take_hmac(headers).event.ce_id
    assert take_hmac(headers, without_id="body").event.ce_id == take_hmac(headers, without_id="body").event.ce_id


def test_without_an_id_a_signed_timestamp_and_the_body_stand_for_it() -> None:
    settings: dict[str, Any] = {"template": "{timestamp}.{body}", "timestamp_header": "X-Time"}
    later = str(int(TIMESTAMP) + 1)

    def ce_id(timestamp: str) -> str:
        headers = {"X-Time": timestamp, "X-Signature": mac(f"{timestamp}.".encode() + BODY)}
        return take_hmac(headers, **settings).event.ce_id

    assert ce_id(TIMESTAMP) == ce_id(TIMESTAMP) != ce_id(later)


@pytest.mark.parametrize(
    "headers",
    [{}, {"X-Signature": ""}, {"X-Signature": "v0="}, {"X-Signature": mac(BODY)}, {"X-Signature": "v0=" + mac(b"x")},
     {"X-Signature": "v0=" + mac(BODY, secret="other")}, {"X-Signature": "V0=" + mac(BODY)}, {"X-Signature": "v0=ÿ"}],
)  # fmt: skip
def test_a_wrong_signature_is_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(Rejected):
        take_hmac(headers, prefix="v0=")


@pytest.mark.parametrize(
    ("settings", "field", "problem"),
    [
        ({"algorithm": "md5"}, "algorithm", "one of sha256, sha512, sha1"),
        ({"encoding": "binary"}, "encoding", "one of hex, base64"),
        ({"header": ""}, "header", "must name a header"),
        ({"header": "X Sig"}, "header", "must be the name of a header"),
        ({"header": 3}, "header", "must be text"),
        ({"id_path": "a..b"}, "id_path", "joined by dots"),
        ({"secret": "x"}, "secret", "is unknown; use algorithm"),
        ({"template": "{timestamp}"}, "template", r"must contain \{body\} once"),
        ({"template": "{body}{body}"}, "template", r"must contain \{body\} once"),
        ({"template": "{method}.{body}"}, "template", r"\{method\} is unknown"),
        ({"template": "{body"}, "template", r"\{body is unknown"),
        ({"template": "{timestamp}.{body}"}, "timestamp_header", "must name the header"),
        ({"timestamp_header": "X-Time"}, "template", r"must contain \{timestamp\}"),
        ({"template": "{id}.{body}"}, "id_header", "must name the header"),
        ({"template": "{timestamp}{body}", "timestamp_header": "X-Time"}, "template", "needs a separator"),
        ({"template": "{timestamp}0{body}", "timestamp_header": "X-Time"}, "template", "by digits"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(settings: dict[str, object], field: str, problem: str) -> None:
    with pytest.raises(InvalidSettings, match=problem) as refusal:
        schemes()["hmac"].clean_settings(settings)

    assert field in refusal.value.errors


def test_all_mistakes_are_shown_at_once() -> None:
    with pytest.raises(InvalidSettings) as refusal:
        schemes()["hmac"].clean_settings({"algorithm": "md5", "header": "", "colour": "red"})

    assert set(refusal.value.errors) == {"algorithm", "header", "colour"}


def test_a_form_asks_for_the_schemes_own_settings_first() -> None:
    names = [field.name for field in schemes()["hmac"].fields]

    assert names[:2] == ["algorithm", "encoding"]
    assert names[-1] == "without_id"


def test_a_secret_is_kept_to_the_letter() -> None:
    assert schemes()["hmac"].clean_secret(" spaced ") == " spaced "
    with pytest.raises(InvalidSettings, match="must not be empty"):
        schemes()["hmac"].clean_secret("")


def test_the_signature_is_the_one_everybody_computes() -> None:
    """RFC 4231, test case 2."""
    expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"

    assert take_hmac({"X-Signature": expected}, body=b"what do ya want for nothing?", secret="Jefe").secret
