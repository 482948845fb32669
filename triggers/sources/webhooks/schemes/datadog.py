import json
import re
from typing import Any
from uuid import uuid4

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.webhooks.naming import body_id, event_id, is_name, value_at
from triggers.sources.webhooks.proof import Proof
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.bearer import SentToken
from triggers.sources.webhooks.schemes.shared_secret import NoSettings

# The payload that the operator enters at Datadog; Datadog replaces the variables.
TEMPLATE = {
    "id": "$ID",
    "transition": "$ALERT_TRANSITION",
    "cycle": "$ALERT_CYCLE_KEY",
    "monitor": "$ALERT_ID",
    "title": "$EVENT_TITLE",
    "text": "$TEXT_ONLY_MSG",
    "scope": "$ALERT_SCOPE",
    "priority": "$PRIORITY",
    "tags": "$TAGS",
    "host": "$HOSTNAME",
    "link": "$LINK",
    "date": "$DATE_POSIX",
}
NO_LETTERS = re.compile(r"[^a-z0-9]+")


@register
class Datadog(SentToken[NoSettings]):
    """Datadog signs nothing: it sends a token in a custom header. The payload is a template of the operator."""

    name = "datadog"
    label = "Datadog"
    help_text = (
        "For Datadog's Webhooks integration. An event is named by the transition of its monitor, as in monitor.triggered and "
        "monitor.recovered; its subject is the cycle of the alert, from its trigger to its recovery."
    )
    group = Group.MONITORING
    setup = (
        "In Datadog, open Integrations → Webhooks, and add a webhook.",
        "Enter {url} as URL.",
        f"Enter {json.dumps(TEMPLATE)} as Payload.",
        'Enter {"Authorization": "Bearer SECRET"} as Custom Headers, with the secret of this source in place of SECRET.',
        "Leave “Encode as form” off, and save.",
        "Name the webhook in the message of each monitor, as in @webhook-wakeful.",
    )
    docs_url = "https://docs.datadoghq.com/integrations/webhooks/"
    secret_label = "Bearer token"
    settings_class = NoSettings

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        payload = read_payload(delivery.body)
        id_, transition = _value(payload.data, "id"), _value(payload.data, "transition")
        subject = _value(payload.data, "cycle")
        return Description(
            # An id alone would make one event of an alert and its recovery, in a template that has the monitor's id there.
            id=event_id(f"{id_}:{transition}") if id_ and transition else body_id(delivery),
            type=f"monitor.{_word(transition) or 'notified'}",
            payload=payload,
            subject=subject if is_name(subject) else "",
        )

    def sample(self, settings: NoSettings) -> Sample:
        values = {
            **TEMPLATE,
            "id": str(uuid4().int)[:19],
            "transition": "Triggered",
            "cycle": "1234567",
            "monitor": "1234",
            "title": "[Triggered] A test alert from Wakeful",
            "text": "A test alert from Wakeful.",
        }
        filled = {name: "" if value.startswith("$") else value for name, value in values.items()}
        return Sample(body=json.dumps(filled).encode(), headers={"Content-Type": "application/json"})


def _value(data: Any, name: str) -> str:
    """A value of the template; empty if Datadog knew no value for its variable."""
    value = value_at(data, name) or ""
    return "" if value.startswith("$") else value


def _word(transition: str) -> str:
    """“Re-No Data” as re_no_data."""
    return NO_LETTERS.sub("_", transition.lower()).strip("_")[:100]
