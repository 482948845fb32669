import json
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.webhooks.naming import body_id, event_id, event_type, subject_at, value_at
from triggers.sources.webhooks.proof import Proof
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.bearer import SentToken
from triggers.sources.webhooks.schemes.shared_secret import NoSettings


@register
class Alertmanager(SentToken[NoSettings]):
    """Alertmanager signs nothing: it sends a bearer token. It sends again after a 5xx, and gives up after any 4xx."""

    name = "alertmanager"
    label = "Prometheus Alertmanager"
    help_text = (
        "For webhook receivers of Alertmanager and Mimir. Each notification of a group of alerts is one event, alert.firing or "
        "alert.resolved. Its repetitions (repeat_interval) are duplicates."
    )
    group = Group.MONITORING
    setup = (
        "In alertmanager.yml, add an entry to the webhook_configs of a receiver.",
        "Enter {url} as its url.",
        "Set its http_config.authorization.credentials to the secret of this source, or credentials_file to a file with it.",
        "Keep send_resolved: true, and leave max_alerts at 0, so that notifications are complete.",
        "Name the receiver in a route, and reload Alertmanager.",
    )
    docs_url = "https://prometheus.io/docs/alerting/latest/configuration/#webhook_config"
    secret_label = "Bearer token"
    settings_class = NoSettings

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        return describe_notification(delivery)

    def sample(self, settings: NoSettings) -> Sample:
        return sample_notification({"receiver": "wakeful", "version": "4", "truncatedAlerts": 0})


def describe_notification(delivery: Delivery) -> Description:
    """A notification as Alertmanager and Grafana write it. A body of another form, made by a template, is named by its bytes."""
    payload = read_payload(delivery.body)
    return Description(
        id=_id(payload.data) or body_id(delivery),
        type=event_type(f"alert.{value_at(payload.data, 'status') or 'received'}") or "alert.received",
        payload=payload,
        subject=subject_at(payload.data, "groupLabels.alertname", "commonLabels.alertname"),
    )


def sample_notification(fields: Mapping[str, Any]) -> Sample:
    labels = {"alertname": "TestFromWakeful", "severity": "info"}
    alert = {
        "status": "firing",
        "labels": labels,
        "annotations": {"summary": "A test alert from Wakeful."},
        "startsAt": "2026-01-31T17:30:00.000Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "generatorURL": "",
        "fingerprint": uuid4().hex[:16],
    }
    notification = {
        **fields,
        "status": "firing",
        "alerts": [alert],
        "groupLabels": {"alertname": "TestFromWakeful"},
        "commonLabels": labels,
        "commonAnnotations": {},
        "externalURL": "",
        "groupKey": '{}:{alertname="TestFromWakeful"}',
    }
    return Sample(body=json.dumps(notification).encode(), headers={"Content-Type": "application/json"})


def _id(data: Any) -> str | None:
    """Equal for all tries of one notification: the group, its status, and each alert with its status and start. Without the start,
    an alert that fires for the second time would be a duplicate."""
    group, alerts = value_at(data, "groupKey"), _alerts(data)
    if not group or not alerts:
        return None
    return event_id(json.dumps([group, value_at(data, "status"), *sorted(map(_alert_id, alerts))]))


def _alert_id(alert: Any) -> str:
    # Alertmanager before 0.19 sends no fingerprint, which is a hash of the labels.
    labels = alert.get("labels") if isinstance(alert, dict) else None
    named = value_at(alert, "fingerprint") or json.dumps(labels, sort_keys=True)
    return f"{named} {value_at(alert, 'startsAt')} {value_at(alert, 'status')}"


def _alerts(data: Any) -> list[Any]:
    alerts = data.get("alerts") if isinstance(data, dict) else None
    return alerts if isinstance(alerts, list) else []
