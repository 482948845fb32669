import json
import re
from dataclasses import dataclass
from uuid import uuid4

from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import read_payload
from triggers.sources.http.timestamps import time_in
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
from triggers.sources.webhooks.proof import Proof
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.shared_secret import SignedBody

WORD = re.compile(r"[a-z][a-z0-9_]{0,99}")


@dataclass(frozen=True, kw_only=True)
class SentrySettings:
    """Settings that decide how retries are recognised."""

    identity: str = setting(
        "body",
        "Id of an event",
        "Sentry repeats a delivery under a new Request-ID. “body” treats equal bodies as one event, so that a retry wakes no agent "
        "again. “request” treats each request as an event, retries included.",
        choices=("body", "request"),
    )


@register
class Sentry(SignedBody[SentrySettings]):
    """Sentry signs the body only, and makes a new Request-ID for each attempt."""

    name = "sentry"
    label = "Sentry"
    help_text = "For internal integrations of Sentry. Events are named by resource and action: issue.created."
    group = Group.MONITORING
    setup = (
        "At Sentry, open Settings → Custom Integrations → Create New Integration → Internal Integration.",
        "Enter {url} as Webhook URL, and switch on Alert Rule Action if alert rules are to wake agents.",
        "Choose the permissions and the webhooks that agents need, such as issue, and save the integration.",
        "Copy its client secret, and enter it here.",
    )
    docs_url = "https://docs.sentry.io/organization/integrations/integration-platform/webhooks/"
    secret_label = "Client secret"
    is_secret_given = True
    settings_class = SentrySettings
    signature_header = "sentry-hook-signature"
    required_headers = ("sentry-hook-resource",)

    def leaves_id_unsigned(self, settings: SentrySettings) -> bool:
        return settings.identity == "request"

    def describe(self, delivery: Delivery, proof: Proof, settings: SentrySettings) -> Description:
        payload = read_payload(delivery.body)
        request = header_text(delivery, "request-id") if settings.identity == "request" else None
        return Description(
            id=event_id(request) if request else body_id(delivery),
            type=_type(delivery, value_at(payload.data, "action") or ""),
            subject=subject_at(
                payload.data, "data.issue.shortId", "data.issue.id", "data.event.issue_id", "data.error.issue_id",
                "data.metric_alert.id", "data.issue_id",
            ),
            time=time_in(header_text(delivery, "sentry-hook-timestamp")),
            payload=payload,
        )  # fmt: skip

    def sample(self, settings: SentrySettings) -> Sample:
        issue = {"id": uuid4().hex, "shortId": "TEST-1", "title": "A test event from Wakeful", "status": "unresolved"}
        body = {"action": "created", "data": {"issue": issue}, "actor": {"type": "application", "name": "Sentry"}}
        headers = {
            "Content-Type": "application/json",
            "Request-ID": uuid4().hex,
            "Sentry-Hook-Resource": "issue",
        }
        return Sample(body=json.dumps(body).encode(), headers=headers)


def _type(delivery: Delivery, action: str) -> str:
    resource = as_text(delivery.headers["sentry-hook-resource"])
    return event_type(f"{resource}.{action}" if WORD.fullmatch(action) else resource) or UNNAMED_TYPE
