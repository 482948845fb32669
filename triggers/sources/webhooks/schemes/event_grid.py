import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from triggers.sources.cloudevents.format import (
    BATCH,
    MOST_EVENTS,
    STRUCTURED,
    InvalidEvent,
    UnsupportedMedia,
    read_message,
)
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.http.timestamps import time_in
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.identity_token import Issuer, claims_of
from triggers.sources.webhooks.naming import event_id, event_origin, event_type, subject_at, value_at
from triggers.sources.webhooks.object_changes import change_of_blob
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Reply, Sample
from triggers.sources.webhooks.schemes.cloudevents import (
    CloudEvents,
    CloudEventsSettings,
    described,
    token_in_query,
    unread,
)

GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
VALIDATION = "Microsoft.EventGrid.SubscriptionValidationEvent"
UNNAMED_TYPE = "event_grid.event"
# The application of Event Grid itself, in every tenant of Azure and of Azure Government: others may have tokens for the same audience.
SENDERS = ("4962773b-9cdb-44cf-a8bf-237846a00ab7", "54316b56-3481-47f9-8f30-0300f5542a7b")


def _guid_problem(value: str) -> str:
    return "" if not value or GUID.fullmatch(value) else "must be an id such as 72f988bf-86f1-41af-91ab-2d7cd011db47"


@dataclass(frozen=True, kw_only=True)
class EventGridSettings(CloudEventsSettings):
    """Who may send, and whether a token of Microsoft Entra ID is needed besides the secret."""

    tenant: str = setting(
        "",
        "Tenant",
        "Of Microsoft Entra ID. With it, each delivery needs a token of Entra ID too.",
        check=_guid_problem,
    )
    application: str = setting(
        "",
        "Application",
        "The id of the application for which the tokens are; of the same tenant.",
        check=_guid_problem,
    )

    def __post_init__(self) -> None:
        if bool(self.tenant) != bool(self.application):
            missing = "application" if self.tenant else "tenant"
            raise InvalidSettings({missing: "is needed: enter both the tenant and the application, or none of them"})

    @property
    def issuer(self) -> Issuer:
        login = "https://login.microsoftonline.com"
        return Issuer(
            names=(f"https://sts.windows.net/{self.tenant}/", f"{login}/{self.tenant}/v2.0"),
            keys=f"{login}/{self.tenant}/discovery/v2.0/keys",
        )


@register
class EventGrid(CloudEvents):
    """A secret in the address or in a header, and a token of Entra ID if the settings ask for it. Both schemas of Event Grid."""

    name = "event_grid"
    fetches = True
    label = "Azure Event Grid"
    help_text = (
        "For webhook subscriptions of Azure Event Grid, and through them for Blob Storage. Each change of a blob is an event of its own "
        "(file.created, file.vanished), with its address as subject; other events keep their type."
    )
    group = Group.CLOUD
    setup = (
        "In Azure, add an event subscription to the storage account or topic, with endpoint type Web Hook and the address "
        "{url}?access_token=SECRET, where SECRET is the secret of this source. Choose either schema: this source answers the validation.",
        "For blobs, choose the event types Blob Created and Blob Deleted.",
        "For tokens of Entra ID besides: at the subscription's Delivery Properties, enter tenant and application, and enter the same ids "
        "here.",
    )
    docs_url = "https://learn.microsoft.com/en-us/azure/event-grid/webhook-event-delivery"
    secret_label = "Secret"
    settings_class = EventGridSettings
    overloaded = 503

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: CloudEventsSettings) -> Proof:
        bearer, given = delivery.headers.bearer(), token_in_query(delivery)
        if not given and not _needs_token(settings):
            given = bearer
        if not given:
            raise Rejected("the address has no access_token in its query")
        proof = Proof(secret=matching_secret(secrets, lambda secret: hmac.compare_digest(secret, given)))
        if _needs_token(settings):
            audiences = [settings.application, f"api://{settings.application}"]
            claims = claims_of(bearer, settings.issuer, audiences, delivery.received_at)
            if (claims.get("appid") or claims.get("azp")) not in SENDERS or claims.get("tid") != settings.tenant:
                raise Rejected("the token is not of Event Grid in the tenant of the settings")
        return proof

    def greet(self, delivery: Delivery, proof: Proof, settings: CloudEventsSettings) -> Reply | None:
        events = read_payload(delivery.body).data
        if not isinstance(events, list) or len(events) != 1 or value_at(events[0], "eventType") != VALIDATION:
            return None
        code = value_at(events[0], "data.validationCode")
        if not code:
            raise Rejected("the validation of the subscription has no code")
        return Reply(body=json.dumps({"validationResponse": code}).encode(), content_type="application/json")

    def describe(
        self, delivery: Delivery, proof: Proof, settings: CloudEventsSettings
    ) -> Description | list[Description]:
        if delivery.headers.media_type() not in (STRUCTURED, BATCH):
            return _of_own_schema(delivery)
        try:
            events = read_message(delivery.headers, delivery.body).events
        except (InvalidEvent, UnsupportedMedia) as error:
            return unread(delivery, str(error))
        if not events:
            return unread(delivery, "no event")
        is_alone = len(events) == 1
        return [
            _described(
                {"data": event.data, "subject": event.subject, "source": event.source},
                replace(described(event), body=None if is_alone else event.body),
            )
            for event in events
        ]

    def sample(self, settings: CloudEventsSettings) -> Sample | None:
        return None if _needs_token(settings) else super().sample(settings)


def _needs_token(settings: CloudEventsSettings) -> TypeGuard[EventGridSettings]:
    return isinstance(settings, EventGridSettings) and bool(settings.tenant)


def _of_own_schema(delivery: Delivery) -> Description | list[Description]:
    payload = read_payload(delivery.body)
    events = payload.data
    if payload.error:
        return unread(delivery, payload.error.removeprefix("kept raw: "))
    if not isinstance(events, list) or not 0 < len(events) <= MOST_EVENTS:
        return unread(delivery, f"no list of 1 to {MOST_EVENTS:,} events")
    if not all(value_at(one, "id") and value_at(one, "eventType") for one in events):
        return unread(delivery, "an event without id or eventType")
    is_alone = len(events) == 1
    return [_described(one, _event(one, is_alone=is_alone)) for one in events]


def _event(event: Mapping[str, Any], *, is_alone: bool) -> Description:
    id_ = event_id(value_at(event, "id") or "")
    return Description(
        id=id_,
        source=event_origin(value_at(event, "topic") or "", id_),
        type=event_type(value_at(event, "eventType")) or UNNAMED_TYPE,
        subject=subject_at(event, "subject"),
        time=time_in(value_at(event, "eventTime")),
        payload=Payload(data=event.get("data")),
        body=None if is_alone else json.dumps(event, separators=(",", ":")).encode(),
    )


def _described(record: Mapping[str, Any], event: Description) -> Description:
    """The event; of a blob as a change of an object."""
    change = change_of_blob(record, type=event.type, time=event.time)
    return replace(event, type=change.type, subject=change.subject, payload=change.payload) if change else event
