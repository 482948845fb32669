import base64
import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import uuid4

from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import FORM, MOST_ESCAPES, MOST_FIELDS, read_form, read_payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import setting
from triggers.sources.webhooks.naming import (
    UNNAMED_TYPE,
    body_id,
    event_id,
    event_type,
    header_text,
    subject_at,
    value_at,
)
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Reply, Sample
from triggers.sources.webhooks.schemes.shared_secret import SharedSecret

ALGORITHMS = {"HMAC_SHA1": "sha1", "HMAC_SHA256": "sha256"}
PORTS = {"https": 443, "http": 80}
PORT = re.compile(r":[0-9]*$")
# A recording has the status of its call too.
STATUS = {
    "recording": ("RecordingStatus",),
    "message": ("MessageStatus", "SmsStatus"),
    "call": ("CallStatus",),
}


def web_address(value: str) -> str:
    return "" if not value or _spellings(value) else "must be the whole address, such as https://example.com/hooks/sms/"


@dataclass(frozen=True, kw_only=True)
class TwilioSettings:
    """The address that Twilio signs."""

    address: str = setting(
        "",
        "Address at Twilio",
        "Twilio signs the address that it calls. Enter it as it stands at Twilio if it differs from the address of this source, for "
        "example by a query.",
        check=web_address,
    )


@register
class Twilio(SharedSecret[TwilioSettings]):
    """Twilio signs the address and the fields of the form, or the address and a hash of a JSON body."""

    name = "twilio"
    label = "Twilio"
    help_text = "For webhooks of Twilio. Events are named by resource and status: message.received, message.delivered, call.completed."
    group = Group.MESSAGES
    setup = (
        "In the Twilio Console, open Phone Numbers → Active Numbers, and choose a number.",
        "Enter {url} with HTTP POST where a message or a call comes in, or as status callback.",
        "Copy the primary Auth Token from Account → API keys & tokens, and enter it here.",
    )
    docs_url = "https://www.twilio.com/docs/usage/webhooks/webhooks-security"
    secret_label = "Auth Token"
    is_secret_given = True
    settings_class = TwilioSettings
    accepted = Reply(
        body=b"<Response/>", content_type="text/xml"
    )  # no further instructions for the message or the call

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: TwilioSettings) -> Proof:
        given = delivery.headers.get("x-twilio-signature")
        if not given:
            raise Rejected("x-twilio-signature is missing")
        algorithm = _algorithm(delivery.headers.get("x-twilio-webhooks-signature-settings", b""))
        texts = _signed_texts(settings.address or delivery.url, delivery.headers.media_type(), delivery.body)

        def proves(secret: bytes) -> bool:
            return any(hmac.compare_digest(_signature(secret, text, algorithm), given) for text in texts)

        return Proof(secret=matching_secret(secrets, proves))

    def leaves_id_unsigned(self, settings: TwilioSettings) -> bool:
        return True

    def describe(self, delivery: Delivery, proof: Proof, settings: TwilioSettings) -> Description:
        is_form = delivery.headers.media_type() == FORM
        payload = read_form(delivery.body) if is_form else read_payload(delivery.body)
        id_ = header_text(delivery, "i-twilio-idempotency-token")
        return Description(
            id=event_id(id_) if id_ else body_id(delivery),
            type=_type(payload.data),
            subject=subject_at(payload.data, "MessageSid", "CallSid", "ConversationSid", "TaskSid", "Sid"),
            payload=payload,
        )

    def sample(self, settings: TwilioSettings) -> Sample:
        fields = {
            "MessageSid": f"SM{uuid4().hex}",
            "AccountSid": f"AC{'0' * 32}",
            "From": "+15005550006",
            "To": "+15005550001",
            "Body": "A test event from Wakeful",
            "NumMedia": "0",
            "SmsStatus": "received",
        }
        headers = {"Content-Type": FORM, "I-Twilio-Idempotency-Token": str(uuid4())}
        return Sample(body=urlencode(fields).encode(), headers=headers)

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: TwilioSettings) -> Mapping[str, str]:
        texts = _signed_texts(settings.address or sample.url, FORM, sample.body)
        return {"X-Twilio-Signature": _signature(secret, texts[0], "sha1").decode()} if texts else {}


def _signed_texts(address: str, media_type: str, body: bytes) -> list[bytes]:
    """The texts that Twilio may have signed."""
    if media_type == FORM:
        fields = _fields(body)
        return [spelling + fields for spelling in _spellings(address)]
    digest = b"bodySHA256=" + hashlib.sha256(body).hexdigest().encode()
    return [_with_digest(spelling, digest) for spelling in _spellings(address)]


def _fields(body: bytes) -> bytes:
    """The fields of a form in the order of their names and, by Twilio's rule, without separators."""
    if body.count(b"%") > MOST_ESCAPES:
        raise Rejected(f"the form has more than {MOST_ESCAPES:,} escaped bytes")
    try:
        fields = parse_qsl(body.decode("ascii"), True, errors="strict", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise Rejected(f"the body is not a form of at most {MOST_FIELDS:,} fields") from None
    return "".join(name + value for name, value in sorted(set(fields))).encode()


def _with_digest(spelling: bytes, digest: bytes) -> bytes:
    # Twilio adds it to the query of the address, which the receiver may see with it or without.
    if spelling.endswith(digest):
        return spelling
    return spelling + (b"&" if b"?" in spelling else b"?") + digest


def _spellings(address: str) -> list[bytes]:
    """The address without and with its port, as Twilio signs now one and now the other; none if it is no address."""
    try:
        parts = urlsplit(address)
        port = parts.port or PORTS[parts.scheme]
    except (ValueError, KeyError):
        return []
    if not parts.hostname:
        return []
    host = PORT.sub("", parts.netloc)
    # A fragment has settings of the connection, which are not sent.
    spellings = [parts._replace(netloc=netloc, fragment="").geturl() for netloc in (host, f"{host}:{port}")]
    return [spelling.encode("utf-8", "replace") for spelling in spellings]


def _algorithm(settings: bytes) -> str:
    """The hash that Twilio names beside the signature; without a name it is that of Auth Tokens."""
    names = [
        value
        for name, _, value in (part.strip().partition(b"=") for part in settings.split(b","))
        if name == b"algorithm"
    ]
    algorithm = ALGORITHMS.get(as_text(names[0]).upper()) if names else "sha1"
    if algorithm is None:
        raise Rejected("x-twilio-webhooks-signature-settings names an unknown algorithm")
    return algorithm


def _signature(secret: bytes, text: bytes, algorithm: str) -> bytes:
    return base64.b64encode(hmac.digest(secret, text, algorithm))


def _type(data: Any) -> str:
    """The resource and its status; the name of the event where Twilio sends one."""
    if named := value_at(data, "EventType") or value_at(data, "type") or value_at(data, "0.type"):
        return event_type(named) or UNNAMED_TYPE
    for resource, fields in STATUS.items():
        for field in fields:
            if status := value_at(data, field):
                return event_type(f"{resource}.{status}") or UNNAMED_TYPE
    return UNNAMED_TYPE
