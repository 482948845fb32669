import hashlib
import hmac
import json
import re
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from triggers.sources.http.forms import Form, NoForm, is_form
from triggers.sources.http.payload import FORM, Payload, read_payload
from triggers.sources.kind import Group, register
from triggers.sources.mail import MOST_TEXT, read_mail
from triggers.sources.parsed_mail import put_together
from triggers.sources.webhooks.naming import event_id, event_type, is_name, subject_at, value_at
from triggers.sources.webhooks.proof import MOST_UNPROVED, Proof, Rejected, SigningSecret, fresh_time, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Reply, Sample
from triggers.sources.webhooks.schemes.shared_secret import NoSettings, SharedSecret

TOKEN = re.compile(r"[0-9A-Za-z_-]{1,100}")
SECONDS = re.compile(r"[0-9]{10}")
SIGNATURE = ("timestamp", "token", "signature", "parent-signature")


@register
class Mailgun(SharedSecret[NoSettings]):
    """An HMAC over a timestamp and a token, which are fields of the body; the rest of the body is not signed. The token is the id of
    the event, so that a captured signature makes no second event."""

    name = "mailgun"
    label = "Mailgun"
    help_text = (
        "For mail that a route of Mailgun forwards (mail.received), and for its webhooks, such as mail.delivered and mail.failed. "
        "Mailgun signs a token, but not the message: use https only."
    )
    group = Group.MESSAGES
    setup = (
        "For inbound mail: in Mailgun, open Receive → Create route, and choose Forward with {url} as address.",
        "For events: open Send → Sending → Webhooks, and add {url} for each type of event.",
        "Copy the HTTP webhook signing key (Settings → API security), and enter it as the secret of this source.",
    )
    docs_url = "https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks"
    secret_label = "HTTP webhook signing key"
    is_secret_given = True
    settings_class = NoSettings
    # Mailgun takes a 200 alone for success.
    accepted = Reply()
    # It tries again for eight hours, with the first timestamp and token.
    retried_for = timedelta(hours=9)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: NoSettings) -> Proof:
        timestamp, token, *given = _signature_in(delivery)
        # Without a separator between them, another number of digits would make other values of the same text.
        if not SECONDS.fullmatch(timestamp) or not TOKEN.fullmatch(token):
            raise Rejected("the body has no timestamp and token of Mailgun")
        signed_at = fresh_time(timestamp.encode(), delivery.received_at, self.retried_for)

        def proves(secret: bytes) -> bool:
            expected = _signature(secret, timestamp, token).encode()
            # Of a subaccount's events, one signature is made with the key of its parent.
            return any(hmac.compare_digest(expected, one.encode()) for one in given)

        return Proof(secret=matching_secret(secrets, proves), signed_at=signed_at)

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        return _mail(_form(delivery)) if is_form(delivery.headers) else _event(delivery.payload)

    def sample(self, settings: NoSettings) -> Sample:
        headers = [["Message-Id", f"<{random.token_hex(8)}@example.com>"], ["From", "Test <test@example.com>"]]
        fields = {
            "recipient": "agents@example.com",
            "sender": "test@example.com",
            "from": "Test <test@example.com>",
            "subject": "A test mail from Wakeful",
            "body-plain": "A test mail from Wakeful.",
            "message-headers": json.dumps([*headers, ["Subject", "A test mail from Wakeful"]]),
            "token": random.token_hex(25),
        }
        return Sample(body=urlencode(fields).encode(), headers={"Content-Type": FORM})

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: NoSettings) -> Mapping[str, str]:
        return {}

    def signed(self, sample: Sample, secret: bytes, at: datetime, settings: NoSettings) -> Sample:
        timestamp, token = str(int(at.timestamp())), sample.body.decode("ascii", "replace").rpartition("token=")[2]
        proof = {"timestamp": timestamp, "signature": _signature(secret, timestamp, token)}
        return replace(sample, body=sample.body + b"&" + urlencode(proof).encode())


def _signature(secret: bytes, timestamp: str, token: str) -> str:
    return hmac.digest(secret, f"{timestamp}{token}".encode(), hashlib.sha256).hex()


def _signature_in(delivery: Delivery) -> tuple[str, ...]:
    """Timestamp, token, and both signatures of the body; empty texts for those that are not there."""
    if is_form(delivery.headers):
        form = _form(delivery)
        return tuple(form.text(name) for name in SIGNATURE)
    if len(delivery.body) > MOST_UNPROVED:
        raise Rejected(f"JSON of more than {MOST_UNPROVED:,} bytes")
    signature = _member(delivery.payload.data, "signature")
    return tuple(value_at(signature, name) or "" for name in SIGNATURE)


def _form(delivery: Delivery) -> Form:
    try:
        return delivery.form
    except NoForm as error:
        raise Rejected(str(error)) from None


def _event(payload: Payload) -> Description:
    event = _member(payload.data, "event-data")
    return Description(
        id=event_id(value_at(payload.data, "signature.token") or ""),
        type=event_type(f"mail.{value_at(event, 'event')}") or "mail.event",
        payload=payload,
        subject=subject_at(event, "recipient"),
        time=_instant(_member(event, "timestamp")),
    )


def _mail(form: Form) -> Description:
    headers = read_payload(form.text("message-headers").encode()).data
    pairs = [(str(pair[0]), str(pair[1])) for pair in _items(headers) if isinstance(pair, list) and len(pair) == 2]
    raw = form.fields.get("body-mime")
    mail = read_mail(raw) if raw else put_together(pairs, form.text("body-plain"), form.text("body-html"), form.files)
    data = {
        **mail.data,
        "envelope": {"from": form.text("sender")[:320], "to": [form.text("recipient")[:320]]},
        # Without the quoted text and the signature, as Mailgun sees them.
        "stripped_text": form.text("stripped-text")[:MOST_TEXT],
    }
    return Description(
        id=event_id(form.text("token")),
        type="mail.received",
        payload=Payload(data=data),
        subject=mail.sender if is_name(mail.sender) else "",
        time=mail.sent_at,
    )


def _member(data: Any, name: str) -> Any:
    return data.get(name) if isinstance(data, dict) else None


def _items(data: Any) -> list[Any]:
    return data if isinstance(data, list) else []


def _instant(seconds: Any) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, TypeError, OverflowError, OSError):
        return None
