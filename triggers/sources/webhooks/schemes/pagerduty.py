import hmac
import json
from collections.abc import Sequence
from uuid import uuid4

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.webhooks.naming import UNNAMED_TYPE, body_id, event_id, event_type, subject_at, time_at, value_at
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.shared_secret import NoSettings, SignedBody

MOST_SIGNATURES = 16


@register
class PagerDuty(SignedBody[NoSettings]):
    """PagerDuty's V3 webhooks: the body is signed and has the id of the event."""

    name = "pagerduty"
    label = "PagerDuty"
    help_text = "For Generic Webhooks (V3) of PagerDuty. Events are named as at PagerDuty: incident.triggered."
    group = Group.MONITORING
    setup = (
        "At PagerDuty, open Integrations → Generic Webhooks (v3) → New Webhook.",
        "Enter {url} as Webhook URL.",
        "Choose the scope and the events that agents need, and add the webhook.",
        "Copy the secret that PagerDuty shows once, and enter it here.",
        "Use Send Test Event there: it arrives as an event named pagey.ping.",
    )
    docs_url = "https://developer.pagerduty.com/docs/webhooks-overview"
    is_secret_given = True
    settings_class = NoSettings
    signature_header = "x-pagerduty-signature"
    signature_prefix = "v1="

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: NoSettings) -> Proof:
        # Several while a secret is replaced, each by another secret: never two equal ones.
        given = [entry.strip() for entry in delivery.headers.get(self.signature_header, b"").split(b",")]
        if not any(given) or len(given) > MOST_SIGNATURES or len(given) != len(set(given)):
            raise Rejected(
                f"x-pagerduty-signature is missing, repeats one, or lists more than {MOST_SIGNATURES} signatures"
            )

        def proves(secret: bytes) -> bool:
            expected = self.signature(secret, delivery.body).encode()
            return any(hmac.compare_digest(expected, signature) for signature in given)

        return Proof(secret=matching_secret(secrets, proves))

    def leaves_id_unsigned(self, settings: NoSettings) -> bool:
        return False

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        payload = read_payload(delivery.body)
        id_ = value_at(payload.data, "event.id")
        return Description(
            id=event_id(id_) if id_ else body_id(delivery),
            type=event_type(value_at(payload.data, "event.event_type")) or UNNAMED_TYPE,
            subject=subject_at(payload.data, "event.data.incident.id", "event.data.id"),
            time=time_at(payload.data, "event.occurred_at"),
            payload=payload,
        )

    def sample(self, settings: NoSettings) -> Sample:
        incident = {"id": "PTEST01", "type": "incident", "title": "A test event from Wakeful", "status": "triggered"}
        event = {"id": uuid4().hex.upper(), "event_type": "incident.triggered", "resource_type": "incident"}
        body = json.dumps({"event": event | {"data": incident}}).encode()
        return Sample(body=body, headers={"Content-Type": "application/json", "X-Webhook-Id": str(uuid4())})
