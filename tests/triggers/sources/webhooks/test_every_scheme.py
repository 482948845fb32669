"""What every scheme refuses. A new scheme needs nothing here, unless its defaults alone are no valid settings."""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.kernel.event_names import LONGEST_SUBJECT
from runs.api.strict_json import is_storable
from tests.support.deliveries import NOW, delivery, secrets
from tests.support.examples import some_of
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Greeting, Misconfigured, Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import Delivery, Sample, Scheme, schemes

pytestmark = pytest.mark.sampled

ADDRESS = "https://wakeful.example.com/hooks/test/"
# Settings beside the defaults, or instead of them where they are not valid.
INSTEAD: dict[str, list[dict[str, Any]]] = {
    "none": [{"unverified": True}],
    "pubsub": [{"account": "push@shop-1.iam.gserviceaccount.com"}],
    "sns": [{"topic": "arn:aws:sns:eu-west-1:123456789012:uploads"}],
}
BESIDE: dict[str, list[dict[str, Any]]] = {
    "grafana": [{"timestamp_header": "X-Grafana-Alerting-Timestamp"}],
    "gitlab": [{"proof": "signing token"}],
    "sentry": [{"identity": "request"}],
    "hmac": [
        {
            "template": "{id}.{timestamp}.{body}", "prefix": "v1=", "encoding": "base64",
            "timestamp_header": "X-Time", "id_header": "X-Id", "type_path": "a.0", "type_header": "X-Type",
        }
    ],
}  # fmt: skip
# Senders that sign a part of the body, which has the id.
SIGNED_IN_PART = {"mailgun"}


@dataclass(frozen=True)
class Case:
    """A scheme with settings, and deliveries of its sender."""

    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def scheme(self) -> Scheme[Any]:
        return schemes()[self.kind]

    @cached_property
    def secret(self) -> str:
        return self.scheme.clean_secret(self.scheme.new_secret()) if self.scheme.needs_secret else ""

    @cached_property
    def other_secret(self) -> str:
        return self.scheme.clean_secret(self.scheme.new_secret())

    @cached_property
    def unsigned(self) -> Sample:
        sample = self.scheme.sample(self.scheme.clean_settings(self.settings))
        assert sample
        return replace(sample, url=sample.url or ADDRESS)

    @cached_property
    def genuine(self) -> Sample:
        return self.signed(self.secret)

    @property
    def proof_headers(self) -> list[str]:
        return [name for name in self.genuine.headers if name not in self.unsigned.headers]

    @property
    def sends_secret(self) -> bool:
        """Whether the secret itself is sent: then it proves the sender, but nothing of the delivery."""
        words = [*" ".join(self.genuine.headers.values()).split(), self.genuine.url]
        return any(self.secret.encode() in sent for word in words for sent in (word.encode(), decoded(word)))

    @property
    def has_no_id(self) -> bool:
        """Whether each delivery is a new event: no id is configured, or each ping counts."""
        return (
            self.kind == "ping"
            or any(field.name == "without_id" for field in self.scheme.fields)
            and "id_header" not in self.settings
        )

    def signed(self, secret: str, later: timedelta = timedelta()) -> Sample:
        cleaned = self.scheme.clean_settings(self.settings)
        return self.scheme.signed(self.unsigned, secret.encode(), NOW + later, cleaned)

    def taken(self, sample: Sample, *values: str, later: timedelta = timedelta()) -> Receipt:
        known = secrets(*(values or (self.secret,)))
        receipt = receive(*cleaned(self.kind, self.settings), known, as_delivery(sample, later))
        assert isinstance(receipt, Receipt)
        return receipt

    def refused(self, sample: Sample, *values: str, later: timedelta = timedelta()) -> None:
        with pytest.raises(Rejected):
            self.taken(sample, *values, later=later)


def decoded(word: str) -> bytes:
    """What may be base64, as in basic authentication."""
    try:
        return base64.b64decode(word, validate=True)
    except ValueError:
        return b""


def as_delivery(sample: Sample, later: timedelta = timedelta()) -> Delivery:
    return replace(delivery(sample.body, sample.headers, NOW + later), method=sample.method, url=sample.url)


ALL = [Case(kind, chosen) for kind in schemes() for chosen in [*INSTEAD.get(kind, [{}]), *BESIDE.get(kind, [])]]
SAMPLED = [case for case in ALL if case.scheme.sample(case.scheme.clean_settings(case.settings))]
PROVED = [case for case in SAMPLED if case.scheme.needs_secret]
every_scheme = pytest.mark.parametrize(
    "case", PROVED, ids=lambda case: "-".join([case.kind, *map(str, case.settings.values())])
)


def with_header(sample: Sample, name: str, value: str) -> Sample:
    return replace(sample, headers={**sample.headers, name: value})


@every_scheme
def test_the_sample_of_a_scheme_is_accepted_and_its_proof_is_not_stored(case: Case) -> None:
    event = case.taken(case.genuine).event

    assert event.body == case.genuine.body and not event.data_error
    stored = " ".join(event.headers.values())
    assert not [
        value for name in case.proof_headers if len(value := case.genuine.headers[name]) > 20 and value in stored
    ]


@every_scheme
def test_another_secret_is_refused(case: Case) -> None:
    case.refused(case.genuine, case.other_secret)
    case.refused(case.signed(case.other_secret))


@every_scheme
def test_without_a_secret_nothing_is_accepted(case: Case) -> None:
    case.refused(case.genuine, "")
    case.refused(case.signed(""), "")
    with pytest.raises(Rejected):
        receive(*cleaned(case.kind, case.settings), [], as_delivery(case.genuine))


@every_scheme
def test_a_delivery_without_its_proof_is_refused(case: Case) -> None:
    case.refused(case.unsigned)
    for name in case.proof_headers:
        case.refused(replace(case.genuine, headers={k: v for k, v in case.genuine.headers.items() if k != name}))


@every_scheme
def test_a_delivery_is_refused_long_before_and_after_its_signed_time(case: Case) -> None:
    if case.scheme.prove(
        as_delivery(case.genuine), secrets(case.secret), case.scheme.clean_settings(case.settings)
    ).signed_at:
        case.refused(case.genuine, later=case.scheme.retried_for + timedelta(minutes=5, seconds=1))
        case.refused(case.genuine, later=-timedelta(minutes=5, seconds=1))


@every_scheme
def test_a_replay_and_a_retry_are_the_same_event(case: Case) -> None:
    if case.has_no_id:
        return
    retried = case.signed(case.secret, later=timedelta(minutes=4))

    first = case.taken(case.genuine).event

    assert case.taken(case.genuine).event.ce_id == first.ce_id
    assert case.taken(retried, later=timedelta(minutes=4)).event.ce_id == first.ce_id


@every_scheme
def test_a_replay_under_another_id_is_refused_or_a_duplicate_unless_the_console_warns_of_it(case: Case) -> None:
    first = case.taken(case.genuine).event
    if case.sends_secret or case.scheme.leaves_id_unsigned(case.scheme.clean_settings(case.settings)):
        return
    for name, value in case.genuine.headers.items():
        try:
            again = case.taken(with_header(case.genuine, name, f"{value}1"))
        except Rejected:
            continue
        assert again.event.ce_id == first.ce_id


@every_scheme
def test_a_changed_body_is_refused(case: Case) -> None:
    if case.sends_secret or case.kind in SIGNED_IN_PART:
        return
    body = case.genuine.body
    changed = [
        body[:-1],
        body[: len(body) // 2],
        b"",
        body + b" ",
        b" " + body,
        body[:9] + bytes([body[9] ^ 1]) + body[10:],
    ]
    for other in [*changed, body.decode().encode("utf-16")]:
        case.refused(replace(case.genuine, body=other))


@every_scheme
@pytest.mark.parametrize("separator", [",", ", "])
def test_a_proof_that_is_sent_twice_is_refused(case: Case, separator: str) -> None:
    """A server joins the values of a repeated header by a comma."""
    for name in case.proof_headers:
        value = case.genuine.headers[name]
        case.refused(with_header(case.genuine, name, f"{value}{separator}{value}"))


@every_scheme
def test_a_proof_in_another_encoding_is_refused(case: Case) -> None:
    for name in case.proof_headers:
        value = case.genuine.headers[name]
        for wrong in (
            reencoded(value),
            value.encode("utf-16").decode("latin-1"),
            f"ÿ{value}",
            f"{value}\0",
            value[:-1],
        ):
            if wrong != value:
                case.refused(with_header(case.genuine, name, wrong))


def reencoded(value: str) -> str:
    """Base64 instead of hex, and the other way round."""

    def other(match: re.Match[str]) -> str:
        if re.fullmatch("[0-9a-f]+", match[0]):
            return base64.b64encode(bytes.fromhex(match[0])).decode()
        return base64.b64decode(match[0].rstrip("=")[: len(match[0].rstrip("=")) // 4 * 4]).hex()

    return re.sub(r"[0-9A-Za-z+/]{20,}={0,2}", other, value)


# --- Whatever is sent ---

wire_text = st.binary(max_size=60).map(lambda raw: raw.decode("latin-1"))
likely_text = st.sampled_from(
    ["1795176000", str(int(NOW.timestamp())), "v1,", "v1=", "v0=", "sha256=", "t=1,v1=", "Bearer x", "issues", "a" * 300, "[",
     "application/json", "application/x-www-form-urlencoded; charset=utf-8", "application/x-www-form-urlencoded", ","]
)  # fmt: skip
names = sorted({name for case in PROVED for name in case.genuine.headers})
headers = st.dictionaries(
    st.sampled_from(names) | st.text(max_size=20), wire_text | likely_text | st.text(max_size=60), max_size=8
)
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | likely_text
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3)
)
odd_bodies = st.binary(max_size=300) | st.sampled_from(
    [
        b"", b'{"a":{"b":"\\u0000"}}', b'{"a":[[1]]}', b"[" * 5000, b'{"a":{"b":1e999}}', b"payload=%7B%7D", b"payload=%00&x",
        b'{"a":["\\ud800"]}', b"&" * 2000, b"a=1&a=2&=&b", b"payload=%5B&command=%2Fx", b"command=%00", b'{"type":"url_verification"}',
        b"ssl_check=1", b"\xef\xbb\xbf{}",
    ]
)  # fmt: skip


def twisted(value: Any) -> st.SearchStrategy[Any]:
    if isinstance(value, dict):
        return st.fixed_dictionaries({name: twisted(inner) for name, inner in value.items()}) | json_values
    return st.just(value) | st.just(value) | json_values


def bodies_like(body: bytes) -> st.SearchStrategy[bytes]:
    """This body, with other values in it."""
    try:
        return odd_bodies | twisted(json.loads(body)).map(lambda value: json.dumps(value).encode())
    except ValueError:
        return odd_bodies


def settings_for(case: Case) -> st.SearchStrategy[dict[str, Any]]:
    names = [field.name for field in case.scheme.fields]
    choices = [choice for field in case.scheme.fields for choice in field.choices]
    values = st.none() | st.booleans() | st.integers() | st.text(max_size=30) | st.sampled_from([*choices, ""])
    return st.just(dict(case.settings)) | st.dictionaries(st.sampled_from([*names, "other"]), values, max_size=3)


BODIES = [bodies_like(case.genuine.body) for case in SAMPLED]
SETTINGS = [settings_for(case) for case in SAMPLED]


@given(st.data(), st.sampled_from([number for number, case in enumerate(SAMPLED) if case in PROVED]))
@settings(max_examples=some_of(300))
def test_nothing_is_accepted_that_is_not_signed_with_a_live_secret(data: st.DataObject, number: int) -> None:
    case = SAMPLED[number]
    base = data.draw(st.sampled_from([case.unsigned, case.signed(case.other_secret)]))
    forged = replace(
        base,
        body=data.draw(st.just(base.body) | BODIES[number]),
        headers={**data.draw(st.sampled_from([base.headers, {}])), **data.draw(headers)},
        url=data.draw(st.just(base.url) | st.text(max_size=20)),
    )

    with pytest.raises((Rejected, Misconfigured)):
        receive(*cleaned(case.kind, data.draw(SETTINGS[number])), secrets(case.secret), as_delivery(forged))


@given(st.data(), st.integers(0, len(SAMPLED) - 1))
@settings(max_examples=some_of(300))
def test_whatever_its_sender_signs_can_be_stored(data: st.DataObject, number: int) -> None:
    case = SAMPLED[number]
    scheme, typed = cleaned(case.kind, case.settings)
    sent = replace(
        case.unsigned, body=data.draw(BODIES[number]), headers={**case.unsigned.headers, **data.draw(headers)}
    )

    try:
        proof = scheme.sign(sent, case.secret.encode(), NOW, typed)
        signed = as_delivery(replace(sent, headers={**sent.headers, **proof}))
        received = receive(scheme, typed, secrets(case.secret), signed)
    except Rejected as refusal:
        assert refusal.reason
        return
    if isinstance(received, Greeting):
        assert received.reply.status < 500
        return
    assert isinstance(received, Receipt)
    event = received.event
    assert 0 < len(event.ce_id) <= 255 and 0 < len(event.type) <= 255 and len(event.subject) <= LONGEST_SUBJECT
    assert all(is_storable(text) for text in (event.ce_id, event.type, event.subject, event.data_error))
    assert event.time is None or event.time.tzinfo


def test_an_unknown_scheme_accepts_nothing() -> None:
    with pytest.raises(Misconfigured, match="carrier_pigeon"):
        receive(*cleaned("carrier_pigeon", {}), secrets("secret"), delivery(b"{}", {}))
