import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn
from urllib.parse import urlsplit

from runs.api.strict_json import is_storable
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.http.timestamps import time_in
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.identity_token import Issuer, claims_of
from triggers.sources.webhooks.naming import body_id, event_id, event_origin, event_type, is_name, value_at
from triggers.sources.webhooks.object_changes import change_of_gcs
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme

GOOGLE = Issuer(
    names=("https://accounts.google.com", "accounts.google.com"), keys="https://www.googleapis.com/oauth2/v3/certs"
)
ACCOUNT = re.compile(r"[a-z0-9.-]{1,100}@[a-z0-9.-]{1,150}\.gserviceaccount\.com")
UNNAMED_TYPE = "pubsub.message"


def _account_problem(value: str) -> str:
    return "" if ACCOUNT.fullmatch(value) else "must be a service account, such as push@project.iam.gserviceaccount.com"


@dataclass(frozen=True, kw_only=True)
class PubSubSettings:
    """Whose messages are accepted, and what names their type."""

    account: str = setting(
        "",
        "Service account",
        "The one that signs the tokens of the push subscription, such as push@project.iam.gserviceaccount.com. Tokens of others are "
        "refused: everyone with a Google Cloud project can have some signed.",
    )
    audience: str = setting(
        "",
        "Audience",
        "As it stands at the subscription. Empty: the address of this source, as Pub/Sub has it by default.",
    )
    type_attribute: str = setting(
        "", "Attribute with the type", f"The attribute with the event's type. Without one, it is {UNNAMED_TYPE}."
    )

    def __post_init__(self) -> None:
        if problem := _account_problem(self.account):
            raise InvalidSettings({"account": problem})


@register
class PubSub(Scheme[PubSubSettings]):
    """The identity token of a service account, which Google signs for the address of the source."""

    name = "pubsub"
    fetches = True
    label = "Google Pub/Sub"
    help_text = (
        "For push subscriptions of Google Cloud Pub/Sub, and through them for Cloud Storage. Each change of an object is an event of its "
        "own (file.created, file.changed, file.vanished), with gs://bucket/name as subject; other messages are pubsub.message."
    )
    group = Group.CLOUD
    setup = (
        "In Google Cloud, create a service account for the subscription, and enter its address in the settings of this source.",
        "At the topic, create a subscription with delivery type Push, {url} as endpoint and authentication enabled for this service "
        "account; leave payload unwrapping off.",
        "Let the person who creates it act as the service account (iam.serviceAccounts.actAs).",
        "For Cloud Storage: gcloud storage buckets notifications create gs://BUCKET --topic=TOPIC --payload-format=json.",
    )
    docs_url = "https://cloud.google.com/pubsub/docs/authenticate-push-subscriptions"
    settings_class = PubSubSettings
    needs_secret = False

    def clean_secret(self, secret: str) -> NoReturn:
        raise InvalidSettings({"secret": "is not used: Google signs with its own key; leave it empty"})

    def new_secret(self) -> str:
        return ""

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: PubSubSettings) -> Proof:
        token = delivery.headers.bearer()
        if not token:
            raise Rejected("there is no token in Authorization: enable authentication at the subscription")
        claims = claims_of(token, GOOGLE, [settings.audience or _address(delivery)], delivery.received_at)
        if claims.get("email") != settings.account or claims.get("email_verified") is not True:
            raise Rejected("the token is not of the service account in the settings")
        if not read_payload(delivery.body).error:
            _message(delivery)
        return Proof(secret=None)

    def describe(self, delivery: Delivery, proof: Proof, settings: PubSubSettings) -> Description:
        if error := read_payload(delivery.body).error:  # such as an attribute that PostgreSQL cannot store
            return Description(id=body_id(delivery), type=UNNAMED_TYPE, payload=Payload(error=error))
        message, subscription = _message(delivery)
        attributes = {
            name: value for name, value in (message.get("attributes") or {}).items() if isinstance(value, str)
        }
        content = _content(message.get("data"))
        if change := change_of_gcs(attributes, content.get("data")):
            return Description(
                id=change.id, type=change.type, payload=change.payload, subject=change.subject, time=change.time
            )
        id_, ordered_by = event_id(message["messageId"]), value_at(message, "orderingKey") or ""
        return Description(
            id=id_,
            source=event_origin(f"//pubsub.googleapis.com/{subscription}", id_) if subscription else "",
            type=event_type(attributes.get(settings.type_attribute)) or UNNAMED_TYPE,
            payload=Payload(
                data={
                    **content,
                    "attributes": attributes,
                    "message_id": message["messageId"],
                    "ordering_key": ordered_by,
                    "subscription": subscription,
                }
            ),
            subject=ordered_by if is_name(ordered_by) else "",
            time=time_in(value_at(message, "publishTime")),
        )

    def sample(self, settings: PubSubSettings) -> Sample | None:
        return None

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: PubSubSettings) -> Mapping[str, str]:
        raise NotImplementedError("only Google has the private key")


def _address(delivery: Delivery) -> str:
    parts = urlsplit(delivery.url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"


def _message(delivery: Delivery) -> tuple[dict[str, Any], str]:
    """The message of an authenticated delivery, and its subscription. Raises Rejected."""
    envelope = read_payload(delivery.body).data
    message = envelope.get("message") if isinstance(envelope, dict) else None
    if not isinstance(message, dict) or not isinstance(message.get("messageId"), str) or not message["messageId"]:
        raise Rejected("the body is not a message of Pub/Sub: turn payload unwrapping off at the subscription")
    if not isinstance(message.get("attributes") or {}, dict):
        raise Rejected("the attributes of the message are no object")
    return message, value_at(envelope, "subscription") or ""


def _content(data: Any) -> dict[str, Any]:
    """What the publisher sent: JSON or text as `data`, other bytes as `data_base64`."""
    if not isinstance(data, str) or not data:
        return {"data": None}
    try:
        raw = base64.b64decode(data, validate=True)
        payload = read_payload(raw)
        if not payload.error:
            return {"data": payload.data}
        if is_storable(text := raw.decode()):
            return {"data": text}
    except (binascii.Error, ValueError):
        pass
    return {"data": None, "data_base64": data}
