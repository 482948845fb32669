import hashlib
import hmac
import secrets as random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, header_name, required_header_name, setting
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, fresh_time, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme
from triggers.sources.webhooks.schemes.alertmanager import describe_notification, sample_notification


@dataclass(frozen=True, kw_only=True)
class GrafanaSettings:
    """The headers that the contact point names."""

    header: str = setting(
        "X-Grafana-Alerting-Signature",
        "Signature header",
        "“Header” of the contact point's HMAC Signature.",
        check=required_header_name,
    )
    timestamp_header: str = setting(
        "",
        "Timestamp header",
        "“Timestamp Header” of the contact point, such as X-Grafana-Alerting-Timestamp. Then every delivery must have it, no more "
        "than five minutes off; without one, a leaked delivery can be sent again for ever.",
        check=header_name,
    )


@register
class Grafana(Scheme[GrafanaSettings]):
    """An HMAC over the body, or over timestamp and body. Grafana has signed since version 12."""

    name = "grafana"
    label = "Grafana"
    help_text = (
        "For contact points of Grafana Alerting, version 12 and later. Each notification is one event, alert.firing or "
        "alert.resolved; its repetitions are duplicates. For earlier versions, choose Alertmanager, and enter the secret as "
        "credentials of the Authorization header."
    )
    group = Group.MONITORING
    setup = (
        "In Grafana, open Alerting → Contact points, and add a contact point with the integration Webhook.",
        "Enter {url} as URL, and keep the HTTP method POST.",
        "Under Optional webhook settings → HMAC Signature, enter the secret of this source as Secret.",
        "Enter a Timestamp Header there, such as X-Grafana-Alerting-Timestamp, and the same name in the settings of this source.",
        "Save the contact point, and choose it in a notification policy.",
    )
    docs_url = (
        "https://grafana.com/docs/grafana/latest/alerting/configure-notifications/manage-contact-points/integrations/"
        "webhook-notifier/"
    )
    settings_class = GrafanaSettings

    def clean_secret(self, secret: str) -> str:
        # Not stripped: Grafana signs with the characters as they are entered.
        if not secret.strip():
            raise InvalidSettings(
                {"secret": "must not be empty: enter the secret of the contact point's HMAC Signature"}
            )
        return secret

    def new_secret(self) -> str:
        return random.token_hex(32)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: GrafanaSettings) -> Proof:
        given = delivery.headers.get(settings.header)
        if not given:
            raise Rejected(f"{settings.header} is missing: the contact point has no HMAC secret")
        timestamp, signed_at = b"", None
        if settings.timestamp_header:
            timestamp = delivery.headers.get(settings.timestamp_header, b"")
            signed_at = fresh_time(timestamp, delivery.received_at)
        matched = matching_secret(
            secrets, lambda secret: hmac.compare_digest(_signature(secret, timestamp, delivery.body).encode(), given)
        )
        return Proof(secret=matched, signed_at=signed_at)

    def describe(self, delivery: Delivery, proof: Proof, settings: GrafanaSettings) -> Description:
        return describe_notification(delivery)

    def sample(self, settings: GrafanaSettings) -> Sample:
        return sample_notification(
            {"receiver": "wakeful", "version": "1", "orgId": 1, "title": "[FIRING:1] A test", "state": "alerting"}
        )

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: GrafanaSettings) -> Mapping[str, str]:
        timestamp = str(int(at.timestamp())) if settings.timestamp_header else ""
        headers = {
            settings.header: _signature(secret, timestamp.encode(), sample.body),
            settings.timestamp_header: timestamp,
        }
        return {name: value for name, value in headers.items() if name}

    def secret_headers(self, settings: GrafanaSettings) -> frozenset[str]:
        return frozenset({settings.header})


def _signature(secret: bytes, timestamp: bytes, body: bytes) -> str:
    signed = b"%b:%b" % (timestamp, body) if timestamp else body
    return hmac.digest(secret, signed, hashlib.sha256).hex()
