import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.api.strict_json import is_storable
from triggers.sources.http.headers import REDACTED, Headers, as_text, redact


@given(st.dictionaries(st.text(), st.text()))
def test_any_headers_can_be_kept(fields: dict[str, str]) -> None:
    kept = redact(Headers(fields))

    assert all(is_storable(name) and is_storable(value) for name, value in kept.items())


@given(st.binary())
def test_a_value_is_the_bytes_of_the_wire(raw: bytes) -> None:
    headers = Headers({"X-Raw": raw.decode("latin-1")})

    assert headers["x-RAW"] == raw.strip(b" \t")
    assert is_storable(as_text(raw))


def test_secrets_are_redacted_and_the_rest_is_kept() -> None:
    headers = Headers(
        {
            "Authorization": "Bearer abc",
            "Cookie": "sessionid=abc",
            "X-Hub-Signature-256": "sha256=abc",
            "Webhook-Signature": "v1,abc",
            "X-Api-Key": "abc",
            "X-Gitlab-Token": "abc",
            "X-Shopify-Hmac-Sha256": "abc",
            "X-Odd-Name": "abc",
            "X-GitHub-Event": "issues",
            "Webhook-Id": "msg_1",
        }
    )

    kept = redact(headers, {"X-ODD-Name"})

    assert [name for name, value in kept.items() if value != REDACTED] == ["x-github-event", "webhook-id"]


@pytest.mark.parametrize(
    "name",
    ["X-Webhook-Key", "X-Client-Key", "X-Passcode", "X-Access-Code", "X-Hub-Sig", "X-Twilio-Sig", "X-Bearer", "X-PIN", "X-OTP"]
    + ["X-Amz-Security", "Proxy", "Proxy-Authorization", "Apikey", "X-Passphrase"],
)  # fmt: skip
def test_a_header_whose_name_suggests_a_secret_is_redacted(name: str) -> None:
    assert redact(Headers({name: "abc"})) == {name.lower(): REDACTED}


@pytest.mark.parametrize(
    "name", ["Idempotency-Key", "X-Ping", "X-Status-Code", "X-Keyboard", "Design", "X-Proxy-Cache"]
)
def test_a_name_that_only_looks_like_one_is_kept(name: str) -> None:
    assert redact(Headers({name: "abc"})) == {name.lower(): "abc"}


def test_text_beyond_ascii_is_read_as_utf8() -> None:
    assert redact(Headers({"x-city": "Wien – Süd".encode().decode("latin-1")})) == {"x-city": "Wien – Süd"}
