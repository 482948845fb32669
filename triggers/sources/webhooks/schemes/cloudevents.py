import hmac
import json
import re
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from triggers.sources.cloudevents.format import STRUCTURED, CloudEvent, InvalidEvent, UnsupportedMedia, read_message
from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.naming import UNNAMED_TYPE, body_id
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Reply, Sample, Scheme

# Echoed in a header of the answer. The specification writes a DNS expression.
ORIGIN = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,252})", re.ASCII)


def _origins_error(value: str) -> str:
    wrong = [word for word in value.split() if not ORIGIN.fullmatch(word)]
    return f"must be host names separated by spaces, such as events.example.com; {wrong[0]!r} is none" if wrong else ""


@dataclass(frozen=True, kw_only=True)
class CloudEventsSettings:
    """Who may ask for permission to send."""

    origins: str = setting(
        "",
        "Allowed origins",
        "Host names that a sender may give as WebHook-Request-Origin, separated by spaces; empty: any. Every delivery needs the "
        "token all the same.",
        check=_origins_error,
    )


@register
class CloudEvents(Scheme[CloudEventsSettings]):
    """CloudEvents 1.0 over HTTP, with the specification of their webhooks: a token, and a handshake by OPTIONS."""

    name = "cloudevents"
    label = "CloudEvents"
    help_text = (
        "For senders of CloudEvents 1.0 that follow the CloudEvents webhook specification, such as Azure Event Grid."
    )
    group = Group.ANY_SENDER
    setup = (
        "At the sender, add a webhook subscription with the address {url}.",
        "Choose the CloudEvents 1.0 schema, one event a delivery.",
        "Let it send the token of this source as Authorization: Bearer, or as access_token in the query of the address.",
    )
    docs_url = "https://github.com/cloudevents/spec/blob/main/cloudevents/http-webhook.md"
    secret_label = "Token"
    settings_class = CloudEventsSettings
    overloaded = 429

    def clean_secret(self, secret: str) -> str:
        token = secret.strip()
        if not re.fullmatch(r"[A-Za-z0-9._~+/=-]+", token):
            raise InvalidSettings({"secret": "must be a bearer token: letters, digits and . _ ~ + / - ="})
        return token

    def new_secret(self) -> str:
        return random.token_urlsafe(32)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: CloudEventsSettings) -> Proof:
        token = _token(delivery)
        return Proof(secret=matching_secret(secrets, lambda secret: hmac.compare_digest(secret, token)))

    def describe(
        self, delivery: Delivery, proof: Proof, settings: CloudEventsSettings
    ) -> Description | list[Description]:
        try:
            events = read_message(delivery.headers, delivery.body).events
        except (InvalidEvent, UnsupportedMedia) as error:
            return unread(delivery, str(error))
        if len(events) != 1:
            return unread(delivery, f"a batch of {len(events)} events; send batches to /api/v1/events/")
        return described(events[0])

    def handshake(
        self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: CloudEventsSettings
    ) -> Reply | None:
        """Webhook specification §4. The variant with WebHook-Request-Callback is not used: any stranger could have us call
        an address."""
        asked = as_text(delivery.headers.get("webhook-request-origin", b""))
        if delivery.method != "OPTIONS" or not asked:
            return None
        allowed = settings.origins.lower().split()
        if not ORIGIN.fullmatch(asked) or (allowed and asked.lower() not in allowed):
            raise Rejected("webhook-request-origin is not one of the allowed origins")
        rate = str(delivery.per_minute) if delivery.per_minute else "*"
        return Reply(headers={"Allow": "POST", "WebHook-Allowed-Origin": asked, "WebHook-Allowed-Rate": rate})

    def sample(self, settings: CloudEventsSettings) -> Sample | None:
        event = {
            "specversion": "1.0",
            "id": str(uuid4()),
            "source": "/wakeful/test",
            "type": "test",
            "data": {"message": "A test event from Wakeful."},
        }
        return Sample(body=json.dumps(event).encode(), headers={"Content-Type": STRUCTURED})

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: CloudEventsSettings) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {secret.decode()}"}


def _token(delivery: Delivery) -> bytes:
    token = delivery.headers.bearer() or token_in_query(delivery)
    if not token:
        raise Rejected("Authorization is missing or not Bearer, and the query has no access_token")
    return token


def token_in_query(delivery: Delivery) -> bytes:
    """The access_token of the address; empty: there is none."""
    try:
        [token] = parse_qs(urlsplit(delivery.url).query, max_num_fields=20)["access_token"]
    except (KeyError, ValueError):
        return b""
    return token.encode("utf-8", "surrogatepass")


def described(event: CloudEvent) -> Description:
    return Description(
        id=event.id,
        source=event.source,
        type=event.type,
        subject=event.subject,
        time=event.time,
        payload=Payload(data=event.data, error=event.data_error),
    )


def unread(delivery: Delivery, reason: str) -> Description:
    """A delivery that is kept raw, for this reason."""
    return Description(id=body_id(delivery), type=UNNAMED_TYPE, payload=Payload(error=f"kept raw: {reason}"))
