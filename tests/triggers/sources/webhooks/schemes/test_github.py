import hashlib
import hmac
import json

import pytest

from tests.support.deliveries import recorded, take
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

SECRET = "It's a Secret to Everybody"


def signed_request(name: str, secret: str = SECRET) -> tuple[bytes, dict[str, str]]:
    body, headers = recorded(f"github/{name}")
    return body, headers | signature(body, secret)


def signature(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Hub-Signature-256": "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}


def headers_for(body: bytes, event: str = "issues") -> dict[str, str]:
    return {"X-GitHub-Delivery": "d-1", "X-GitHub-Event": event, **signature(body)}


def test_githubs_own_example_is_accepted() -> None:
    """The pair GitHub's documentation gives to test an implementation against."""
    headers = {
        "X-GitHub-Delivery": "d-1",
        "X-GitHub-Event": "ping",
        "X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
    }

    assert take("github", b"Hello, World!", headers, SECRET).secret


def test_an_opened_issue_is_an_event_of_its_own_type() -> None:
    body, headers = signed_request("issues.opened.json")

    event = take("github", body, headers, SECRET).event

    assert (event.type, event.ce_id) == ("issues.opened", "72d3162e-cc78-11f0-81ab-5b3c0f1e9a10")
    assert event.subject == "lantern-works/tidewatch#418"
    assert event.data["issue"]["labels"][0]["name"] == "needs-triage"
    assert event.headers["x-hub-signature-256"] == "[redacted]"
    assert event.headers["x-github-event"] == "issues"


def test_a_form_encoded_delivery_carries_the_same_data() -> None:
    body, headers = signed_request("issues.opened.form")
    as_json, _ = recorded("github/issues.opened.json")

    event = take("github", body, headers, SECRET).event

    assert event.data == json.loads(as_json)
    assert (event.type, event.body) == ("issues.opened", body)


def test_a_ping_is_an_event_like_any_other() -> None:
    event = take("github", *signed_request("ping.json"), SECRET).event

    assert (event.type, event.subject) == ("ping", "lantern-works/tidewatch")


def test_a_changed_body_is_rejected() -> None:
    body, headers = signed_request("issues.opened.json")

    with pytest.raises(Rejected, match="no live secret matches"):
        take("github", body.replace(b"418", b"419"), headers, SECRET)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-Hub-Signature-256", ""),
        ("X-Hub-Signature-256", "sha256="),
        ("X-Hub-Signature-256", "sha256=zz"),
        ("X-Hub-Signature-256", "ÿ"),
        ("X-GitHub-Delivery", ""),
        ("X-GitHub-Event", ""),
        ("X-GitHub-Event", "issues opened"),
    ],
)
def test_a_missing_or_malformed_header_is_rejected(header: str, value: str) -> None:
    body, headers = signed_request("issues.opened.json")

    with pytest.raises(Rejected):
        take("github", body, headers | {header: value}, SECRET)


def test_the_legacy_sha1_signature_proves_nothing() -> None:
    body, headers = recorded("github/ping.json")
    headers["X-Hub-Signature"] = "sha1=" + hmac.new(SECRET.encode(), body, hashlib.sha1).hexdigest()

    with pytest.raises(Rejected, match="missing"):
        take("github", body, headers, SECRET)


@pytest.mark.parametrize(
    "body", [b"payload", b"payload=%ff", b"other=1", "payload=ü".encode(), b"&" * 50, b"payload=1;x", b"payload=%"]
)
def test_a_form_that_cannot_be_read_is_kept_raw(body: bytes) -> None:
    headers = headers_for(body) | {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}

    event = take("github", body, headers, SECRET).event

    assert (event.type, event.data) == ("issues", None)
    assert event.data_error.startswith("kept raw: ")


@pytest.mark.parametrize("action", ['"opened.now"', "7", "null", '"O"', '["opened"]'])
def test_an_action_that_is_no_word_does_not_get_into_the_type(action: str) -> None:
    body = b'{"action": %b}' % action.encode()

    assert take("github", body, headers_for(body), SECRET).event.type == "issues"


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="must not be empty"):
        schemes()["github"].clean_secret("  ")
