import json
from uuid import uuid4

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.webhooks.naming import (
    UNNAMED_TYPE,
    body_id,
    event_id,
    event_type,
    header_text,
    subject_at,
    time_at,
    value_at,
)
from triggers.sources.webhooks.proof import Proof
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.shared_secret import NoSettings, SignedBody


@register
class Jira(SignedBody[NoSettings]):
    """Jira signs the body only, not the header with the id."""

    name = "jira"
    label = "Jira"
    help_text = "For webhooks of Jira Cloud and Data Center. Events are named as at Jira: jira:issue_created."
    group = Group.CODE
    setup = (
        "As an administrator of Jira, open Settings → System → WebHooks → Create a WebHook.",
        "Enter {url} as URL.",
        "Enter the secret of this source as Secret.",
        "Choose the events that agents need, with a JQL filter if you want one, and create the webhook.",
    )
    docs_url = "https://developer.atlassian.com/cloud/jira/platform/webhooks/"
    settings_class = NoSettings
    signature_header = "x-hub-signature"
    signature_prefix = "sha256="

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        payload = read_payload(delivery.body)
        id_ = header_text(delivery, "x-atlassian-webhook-identifier")
        return Description(
            id=event_id(id_) if id_ else body_id(delivery),
            type=event_type(value_at(payload.data, "webhookEvent")) or UNNAMED_TYPE,
            subject=subject_at(payload.data, "issue.key", "project.key", "sprint.id", "version.id"),
            time=time_at(payload.data, "timestamp"),
            payload=payload,
        )

    def sample(self, settings: NoSettings) -> Sample:
        body = {
            "webhookEvent": "jira:issue_created",
            "issue_event_type_name": "issue_created",
            "issue": {"id": "10001", "key": "TEST-1", "fields": {"summary": "A test event from Wakeful"}},
        }
        headers = {"Content-Type": "application/json", "X-Atlassian-Webhook-Identifier": str(uuid4())}
        return Sample(body=json.dumps(body).encode(), headers=headers)
