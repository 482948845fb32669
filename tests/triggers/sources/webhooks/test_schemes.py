"""What every scheme promises, whichever it is."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs.api.strict_json import is_storable
from tests.support.deliveries import delivery, secrets, take
from triggers.sources.webhooks.proof import Rejected, SigningSecret
from triggers.sources.webhooks.receive import Misconfigured, Receipt, receive
from triggers.sources.webhooks.scheme import schemes

CONFIGURED: dict[str, dict[str, Any]] = {
    "standard_webhooks": {},
    "github": {},
    "hmac": {
        "template": "{id}.{timestamp}.{body}", "prefix": "v1=", "encoding": "base64",
        "timestamp_header": "X-Time", "id_header": "X-Id", "id_path": "a.b", "type_path": "a.0", "type_header": "X-Type",
    },
    "bearer": {"id_header": "X-Id"},
    "none": {"unverified": True, "id_path": "a.b", "type_path": "a.0", "type_header": "X-Type", "without_id": "body"},
}  # fmt: skip
HEADERS = [
    "Webhook-Id", "Webhook-Timestamp", "Webhook-Signature", "X-Hub-Signature-256", "X-GitHub-Delivery", "X-GitHub-Event",
    "X-Signature", "X-Time", "X-Id", "X-Type", "Authorization", "Content-Type",
]  # fmt: skip

wire_text = st.binary(max_size=60).map(lambda raw: raw.decode("latin-1"))
likely_text = st.sampled_from(
    ["1795176000", "v1,", "v1=", "sha256=", "Bearer x", "issues", "application/x-www-form-urlencoded", "a" * 300]
)
headers = st.dictionaries(
    st.sampled_from(HEADERS) | st.text(max_size=20), wire_text | likely_text | st.text(max_size=60)
)
bodies = st.binary(max_size=300) | st.sampled_from(
    [
        b'{"a":{"b":"\\u0000"}}',
        b'{"a":[[1]]}',
        b"[" * 5000,
        b'{"a":{"b":1e999}}',
        b"payload=%7B%7D",
        b'{"a":["\\ud800"]}',
    ]
)


def test_every_scheme_is_known_by_name() -> None:
    assert set(schemes()) >= {"bearer", "github", "hmac", "none", "standard_webhooks"}


@pytest.mark.parametrize("kind", CONFIGURED)
@given(headers=headers, body=bodies, keys=st.lists(st.binary(max_size=40), max_size=3))
@settings(max_examples=150)
def test_no_bytes_on_the_wire_do_more_than_be_rejected(
    kind: str, headers: dict[str, str], body: bytes, keys: list[bytes]
) -> None:
    known = [SigningSecret(id=number, value=key) for number, key in enumerate(keys)]

    try:
        receipt = receive(kind, CONFIGURED[kind], known, delivery(body, headers))
    except Rejected as refusal:
        assert refusal.reason
    else:
        assert isinstance(receipt, Receipt)
        event = receipt.event
        assert 0 < len(event.ce_id) <= 255 and 0 < len(event.type) <= 255
        assert all(is_storable(text) for text in (event.ce_id, event.type, event.subject, event.data_error))


@pytest.mark.parametrize("kind", [kind for kind in CONFIGURED if kind != "none"])
@given(headers=headers, body=bodies)
def test_without_a_secret_nothing_is_accepted(kind: str, headers: dict[str, str], body: bytes) -> None:
    for known in ([], secrets(""), secrets("whsec_")):
        with pytest.raises(Rejected):
            receive(kind, CONFIGURED[kind], known, delivery(body, headers))


@given(
    st.dictionaries(
        st.sampled_from(["header", "template", "unverified"]) | st.text(), st.none() | st.text() | st.booleans()
    )
)
def test_any_settings_are_usable_or_misconfigured(settings: dict[str, object]) -> None:
    for kind in schemes():
        try:
            take(kind, b"{}", {}, "secret", settings=settings)
        except (Misconfigured, Rejected) as refusal:
            assert str(refusal)


def test_an_unknown_scheme_accepts_nothing() -> None:
    with pytest.raises(Misconfigured, match="stripe"):
        take("stripe", b"{}", {}, "secret")


@pytest.mark.parametrize("kind", [kind for kind in CONFIGURED if kind != "none"])
def test_a_form_can_be_made_of_every_scheme(kind: str) -> None:
    scheme = schemes()[kind]

    assert scheme.label and scheme.help_text
    assert all(field.label for field in scheme.fields)
    assert scheme.clean_secret(scheme.new_secret())
    assert scheme.clean_settings({field.name: field.default for field in scheme.fields}) == scheme.clean_settings({})
