import json
from typing import Any

import pytest

from tests.support.deliveries import take
from triggers.accept import Incoming
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

TOKEN = "alertmanager-token"
PROVEN = {"Authorization": f"Bearer {TOKEN}"}
DISK: dict[str, Any] = {
    "status": "firing",
    "labels": {"alertname": "DiskAlmostFull", "instance": "db-1:9100", "severity": "warning"},
    "annotations": {"summary": "The disk of db-1 is full in 4 h."},
    "startsAt": "2026-11-20T11:42:10.718Z",
    "endsAt": "0001-01-01T00:00:00Z",
    "generatorURL": "http://prometheus:9090/graph?g0.expr=predict_linear",
    "fingerprint": "1a30ba71cca2921f",
}
INODES: dict[str, Any] = {**DISK, "fingerprint": "9b8f06ba6a9c1c11", "startsAt": "2026-11-20T11:43:10.718Z"}


def notification(*alerts: dict[str, Any], **fields: Any) -> bytes:
    data = {
        "version": "4",
        "groupKey": '{}/{severity="warning"}:{alertname="DiskAlmostFull"}',
        "truncatedAlerts": 0,
        "status": "firing",
        "receiver": "wakeful",
        "groupLabels": {"alertname": "DiskAlmostFull"},
        "commonLabels": {"alertname": "DiskAlmostFull"},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager:9093",
        "alerts": list(alerts),
        **fields,
    }
    return json.dumps(data).encode()


def event_of(body: bytes) -> Incoming:
    return take("alertmanager", body, PROVEN, TOKEN).event


def test_a_notification_is_an_event_named_by_its_status_and_group() -> None:
    event = event_of(notification(DISK))

    assert (event.type, event.subject) == ("alert.firing", "DiskAlmostFull")
    assert event.data["alerts"][0]["labels"]["instance"] == "db-1:9100"
    assert event.headers["authorization"] == "[redacted]"


def test_a_retry_has_the_id_of_the_first_try_in_whatever_order_the_alerts_come() -> None:
    first = event_of(notification(DISK, INODES))

    assert event_of(notification(DISK, INODES)).ce_id == first.ce_id
    assert event_of(notification(INODES, DISK, receiver="wakeful-2")).ce_id == first.ce_id


def test_another_state_of_the_group_is_another_event() -> None:
    resolved = {**DISK, "status": "resolved", "endsAt": "2026-11-20T12:10:00Z"}
    bodies = [
        notification(DISK),
        notification(DISK, INODES),
        notification(resolved, status="resolved"),
        notification({**DISK, "startsAt": "2026-11-21T03:00:00Z"}),
        notification(DISK, groupKey="{}:{}"),
    ]

    events = [event_of(body) for body in bodies]

    assert len({event.ce_id for event in events}) == len(bodies)
    assert events[2].type == "alert.resolved"


def test_alerts_of_old_versions_are_distinguished_by_their_labels() -> None:
    old = {name: value for name, value in DISK.items() if name != "fingerprint"}
    other = {**old, "labels": {**DISK["labels"], "instance": "db-2:9100"}}

    assert event_of(notification(old)).ce_id == event_of(notification(old)).ce_id
    assert event_of(notification(old)).ce_id != event_of(notification(other)).ce_id


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b'{"alerts": 3}', b'{"groupKey": "g", "alerts": [3, null, {"labels": []}]}',
     b'{"groupKey": "g", "status": {"a": 1}, "alerts": [{}]}', b'{"text": "of a template"}'],
)  # fmt: skip
def test_a_body_of_another_form_is_kept_and_named_by_its_bytes(body: bytes) -> None:
    event = event_of(body)

    assert event.ce_id == event_of(body).ce_id != event_of(body + b" ").ce_id or b"groupKey" in body
    assert (event.type, event.body) == ("alert.received", body)


@pytest.mark.parametrize(
    "value",
    ["", TOKEN, f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}, Bearer {TOKEN}"],
)
def test_a_delivery_without_the_token_is_refused(value: str) -> None:
    with pytest.raises(Rejected):
        take("alertmanager", notification(DISK), {"Authorization": value}, TOKEN)


def test_overload_is_answered_with_the_status_on_which_alertmanager_tries_again() -> None:
    assert schemes()["alertmanager"].overloaded == 503
