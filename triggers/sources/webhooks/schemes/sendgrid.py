import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from email import message_from_string
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from triggers.sources.http.forms import Form, NoForm, is_form, parse_form
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.kind import Group, register
from triggers.sources.mail import read_mail
from triggers.sources.parsed_mail import put_together
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.naming import body_id, event_id, event_type, is_name, subject_at, value_at
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, fresh_time, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme
from triggers.sources.webhooks.schemes.shared_secret import NoSettings

SIGNATURE, TIMESTAMP = "X-Twilio-Email-Event-Webhook-Signature", "X-Twilio-Email-Event-Webhook-Timestamp"
PEM_LINE = re.compile(r"-----[A-Z ]{1,40}-----")
RECEIVED = "mail.received"
LONGEST_HEADERS = 500_000  # characters
CHECKED = ("SPF", "dkim", "sender_ip", "spam_score")  # fields with SendGrid's findings about the sender


@register
class SendGrid(Scheme[NoSettings]):
    """An ECDSA signature over timestamp and body. Only SendGrid has the private key; the source has the public one."""

    name = "sendgrid"
    label = "SendGrid"
    help_text = (
        "For mail that SendGrid's Inbound Parse receives (mail.received), and for its Event Webhook: a delivery with one or more "
        "of its events is one event here, such as mail.bounce, or mail.events if they differ. One source for each."
    )
    group = Group.MESSAGES
    setup = (
        "For inbound mail: in SendGrid, open Settings → Inbound Parse, add the receiving domain with {url} as Destination URL, and "
        "tick “POST the raw, full MIME message”.",
        "Create a security policy with signature verification over the API (POST /v3/user/webhooks/security/policies), and attach "
        "it to the domain.",
        "For events: open Settings → Mail Settings → Event Webhooks, add {url} as Post URL, and turn on Signed Event Webhook.",
        "Enter the public key that SendGrid shows (Verification Key) as the secret of this source.",
    )
    docs_url = "https://www.twilio.com/docs/sendgrid/for-developers/parsing-email/securing-your-parse-webhooks"
    secret_label = "Verification key"
    is_secret_given = True
    settings_class = NoSettings
    # SendGrid does not say whether it signs a retry again. The ids of a delivery are signed: an old one is a duplicate.
    retried_for = timedelta(days=3)

    def clean_secret(self, secret: str) -> str:
        key = "".join(PEM_LINE.sub("", secret).split())
        if _public_key(key.encode()) is None:
            raise InvalidSettings(
                {"secret": "must be a public key (P-256) in base64: paste the Verification Key of SendGrid"}
            )
        return key

    def new_secret(self) -> str:
        key = ec.generate_private_key(ec.SECP256R1()).public_key()
        encoded = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        return base64.b64encode(encoded).decode()

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: NoSettings) -> Proof:
        timestamp = delivery.headers.get(TIMESTAMP, b"")
        signed_at = fresh_time(timestamp, delivery.received_at, self.retried_for)
        signature = _decoded(delivery.headers.get(SIGNATURE, b""))
        if not signature:
            raise Rejected(f"{SIGNATURE} is missing or not base64: the webhook is not signed at SendGrid")
        content = timestamp + delivery.body
        return Proof(
            secret=matching_secret(secrets, lambda key: _verifies(key, signature, content)), signed_at=signed_at
        )

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        return _mail(delivery) if is_form(delivery.headers) else _events(delivery)

    def sample(self, settings: NoSettings) -> Sample | None:
        return None

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: NoSettings) -> Mapping[str, str]:
        raise NotImplementedError("only SendGrid has the private key")


@lru_cache(maxsize=64)
def _public_key(key: bytes) -> ec.EllipticCurvePublicKey | None:
    try:
        loaded = serialization.load_der_public_key(base64.b64decode(key, validate=True))
    except (ValueError, TypeError, binascii.Error):
        return None
    is_right = isinstance(loaded, ec.EllipticCurvePublicKey) and isinstance(loaded.curve, ec.SECP256R1)
    return loaded if is_right else None  # type: ignore[return-value]


def _decoded(signature: bytes) -> bytes:
    try:
        return base64.b64decode(signature, validate=True)
    except binascii.Error:
        return b""


def _verifies(key: bytes, signature: bytes, content: bytes) -> bool:
    public_key = _public_key(key)
    if public_key is None:
        return False
    try:
        public_key.verify(signature, content, ec.ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


def _events(delivery: Delivery) -> Description:
    """The events of one delivery, which SendGrid repeats as a whole."""
    payload = read_payload(delivery.body)
    events = payload.data if isinstance(payload.data, list) else []
    ids = sorted(value_at(event, "sg_event_id") or "" for event in events)
    kinds = {value_at(event, "event") or "" for event in events}
    subject = subject_at(events[0], "email") if len(events) == 1 else ""
    named = event_id(",".join(ids)) if events and all(ids) else body_id(delivery)
    type_ = event_type(f"mail.{kinds.pop()}") if len(kinds) == 1 and all(kinds) else None
    return Description(id=named, type=type_ or "mail.events", payload=payload, subject=subject)


def _mail(delivery: Delivery) -> Description:
    try:
        form = parse_form(delivery.headers, delivery.body)
    except NoForm as error:
        return Description(id=body_id(delivery), type=RECEIVED, payload=Payload(error=f"kept raw: {error}"))
    raw, headers, (text, html) = form.fields.get("email"), form.text("headers")[:LONGEST_HEADERS], _texts(form)
    mail = read_mail(raw) if raw else put_together(message_from_string(headers).items(), text, html, form.files)
    envelope = read_payload(form.text("envelope").encode()).data
    checked = {name: form.text(name)[:2_000] for name in CHECKED if name in form.fields}
    return Description(
        # Of one mail to two addresses there are two deliveries.
        id=event_id(json.dumps([mail.message_id, envelope])),
        type=RECEIVED,
        payload=Payload(data={**mail.data, "envelope": envelope, "checked": checked}),
        subject=mail.sender if is_name(mail.sender) else "",
        time=mail.sent_at,
    )


def _texts(form: Form) -> tuple[str, str]:
    """The plain and the HTML text, each in a charset of its own."""
    charsets = read_payload(form.text("charsets").encode()).data
    plain, html = (form.text(name, value_at(charsets, name) or "utf-8") for name in ("text", "html"))
    return plain, html
