import json
from typing import Any
from uuid import uuid4

from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.webhooks.naming import (
    UNNAMED_TYPE,
    body_id,
    event_id,
    event_type,
    header_text,
    is_name,
    time_at,
    value_at,
)
from triggers.sources.webhooks.proof import Proof
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.shared_secret import NoSettings, SignedBody


@register
class Bitbucket(SignedBody[NoSettings]):
    """Bitbucket Cloud and Data Center sign the body only, not the headers with the id and the event key."""

    name = "bitbucket"
    label = "Bitbucket"
    help_text = "For webhooks of Bitbucket Cloud and Data Center. Events are named by their key: pullrequest:created."
    group = Group.CODE
    setup = (
        "In the repository or workspace at Bitbucket, open Repository settings → Webhooks → Add webhook.",
        "Enter {url} as URL.",
        "Enter the secret of this source as Secret.",
        "Choose the events that agents need, and save the webhook.",
    )
    docs_url = "https://support.atlassian.com/bitbucket-cloud/docs/manage-webhooks/"
    settings_class = NoSettings
    signature_header = "x-hub-signature"
    signature_prefix = "sha256="
    required_headers = ("x-event-key",)

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        payload = read_payload(delivery.body)
        # The name in Cloud, and that in Data Center.
        id_ = header_text(delivery, "x-request-uuid") or header_text(delivery, "x-request-id")
        return Description(
            id=event_id(id_) if id_ else body_id(delivery),
            type=event_type(as_text(delivery.headers["x-event-key"])) or UNNAMED_TYPE,
            subject=_subject(payload.data),
            time=time_at(payload.data, "pullrequest.updated_on"),
            payload=payload,
        )

    def sample(self, settings: NoSettings) -> Sample:
        body = {
            "actor": {"display_name": "Wakeful", "type": "user"},
            "repository": {"full_name": "example/hello-world", "name": "hello-world", "type": "repository"},
            "pullrequest": {"id": 1, "title": "A test event from Wakeful", "state": "OPEN", "type": "pullrequest"},
        }
        headers = {
            "Content-Type": "application/json",
            "X-Event-Key": "pullrequest:created",
            "X-Request-UUID": str(uuid4()),
            "X-Attempt-Number": "1",
        }
        return Sample(body=json.dumps(body).encode(), headers=headers)


def _subject(data: Any) -> str:
    """The object of the event: workspace/repository#number."""
    repository = value_at(data, "repository.full_name") or value_at(data, "repository.slug") or ""
    paths = ("pullrequest.id", "pullRequest.id", "issue.id")
    number = next((number for path in paths if (number := value_at(data, path))), "")
    subject = f"{repository}#{number}" if number else repository
    return subject if is_name(subject) else ""
