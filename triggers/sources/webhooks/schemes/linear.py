import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from uuid import uuid4

from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.webhooks.naming import UNNAMED_TYPE, event_id, event_type, subject_at, time_at, value_at
from triggers.sources.webhooks.proof import Proof, SigningSecret, fresh_time
from triggers.sources.webhooks.scheme import Delivery, Description, Reply, Sample
from triggers.sources.webhooks.schemes.shared_secret import NoSettings, SignedBody


@register
class Linear(SignedBody[NoSettings]):
    """Linear signs the body, which has the time of the attempt, but not the header with the id."""

    name = "linear"
    label = "Linear"
    help_text = "For webhooks of Linear. Events are named by type and action: Issue.create."
    group = Group.CODE
    setup = (
        "At Linear, open Settings → API → Webhooks → New webhook.",
        "Enter {url} as URL.",
        "Choose the data that agents need, and create the webhook.",
        "Copy its signing secret, and enter it here.",
    )
    docs_url = "https://linear.app/developers/webhooks"
    is_secret_given = True
    settings_class = NoSettings
    signature_header = "linear-signature"
    required_headers = ("linear-delivery",)
    accepted = Reply()  # Linear repeats a delivery that is answered with another 2xx than 200

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: NoSettings) -> Proof:
        proof = super().prove(delivery, secrets, settings)
        milliseconds = value_at(read_payload(delivery.body).data, "webhookTimestamp") or ""
        return replace(proof, signed_at=fresh_time(milliseconds[:-3].encode(), delivery.received_at))

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        payload = read_payload(delivery.body)
        names = [name for path in ("type", "action") if (name := value_at(payload.data, path))]
        return Description(
            id=event_id(as_text(delivery.headers["linear-delivery"])),
            type=event_type(".".join(names)) or UNNAMED_TYPE,
            subject=subject_at(payload.data, "data.identifier", "data.issue.identifier", "data.id"),
            time=time_at(payload.data, "createdAt"),
            payload=payload,
        )

    def sample(self, settings: NoSettings) -> Sample:
        body = {
            "action": "create",
            "type": "Issue",
            "data": {"id": str(uuid4()), "identifier": "TEST-1", "title": "A test event from Wakeful"},
        }
        headers = {"Content-Type": "application/json", "Linear-Event": "Issue", "Linear-Delivery": str(uuid4())}
        return Sample(body=json.dumps(body).encode(), headers=headers)

    def signed(self, sample: Sample, secret: bytes, at: datetime, settings: NoSettings) -> Sample:
        """The sample with its time in the body, and its proof."""
        body = json.loads(sample.body) | {"webhookTimestamp": int(at.timestamp() * 1000)}
        return super().signed(replace(sample, body=json.dumps(body).encode()), secret, at, settings)
