"""Messages of AMQP as events. tests/integration/test_rabbitmq.py reads them from a real broker."""

import json
from datetime import UTC, datetime
from typing import Any

import amqp
import pytest

from triggers.sources.brokers.amqp import Amqp, AmqpSettings, event_in
from triggers.sources.runner import Poison, Received
from triggers.sources.settings import InvalidSettings

KIND = Amqp()


def settings_of(**changes: Any) -> AmqpSettings:
    return KIND.clean_settings({"url": "amqps://reader@host/shop", "queue": "orders", **changes})


def event_of(body: str | bytes = "{}", *, by: dict[str, Any] | None = None, **properties: Any) -> Received:
    found = event_in(amqp.Message(body, **properties), settings_of(**(by or {})))
    assert isinstance(found, Received)
    return found


def test_a_message_is_an_event_named_by_its_properties() -> None:
    event = event_of(
        '{"order": 7}',
        by={"subject_header": "customer"},
        message_id="m-1",
        type="order.placed",
        timestamp=1_790_000_000,
        application_headers={"customer": "ada", "attempt": 2, "raw": b"\xff"},
    )

    assert (event.id, event.type, event.subject) == ("m-1", "order.placed", "ada")
    assert event.payload.data == {"order": 7}
    assert event.time == datetime.fromtimestamp(1_790_000_000, UTC)
    assert event.headers == {"customer": "ada", "attempt": "2", "raw": "ÿ", "type": "order.placed"}


def test_the_way_of_a_dead_letter_is_kept_as_json() -> None:
    died = [{"queue": "orders", "reason": "rejected", "count": 2, "time": datetime(2026, 11, 20, tzinfo=UTC)}]

    event = event_of(message_id="m-1", application_headers={"x-death": died})

    assert json.loads(event.headers["x-death"])[0] | {"time": ""} == {**died[0], "time": ""}


def test_a_message_without_an_id_is_a_new_event_each_time_or_known_by_its_body() -> None:
    assert event_of().id != event_of().id
    assert event_of(by={"without_id": "body"}).id == event_of(by={"without_id": "body"}).id
    assert event_of("1", by={"without_id": "body"}).id != event_of("2", by={"without_id": "body"}).id


@pytest.mark.parametrize("prefix", ["cloudEvents:", "cloudEvents_"])
def test_a_cloud_event_is_identified_by_its_own_source_and_id(prefix: str) -> None:
    attributes = {"specversion": "1.0", "id": "c-1", "source": "/shop", "type": "order.placed", "subject": "ada"}
    headers = {f"{prefix}{name}": value for name, value in attributes.items()}

    event = event_of('{"order": 7}', content_type="application/json", application_headers=headers)

    assert (event.origin, event.id, event.type, event.subject) == ("/shop", "c-1", "order.placed", "ada")
    assert event.payload.data == {"order": 7}


def test_an_invalid_message_with_the_content_type_of_cloudevents_is_poison() -> None:
    message = amqp.Message('{"order": 7}', content_type="application/cloudevents+json", message_id="m-1")

    found = event_in(message, settings_of())

    assert isinstance(found, Poison) and found.id == "m-1" and "no CloudEvent" in found.reason


@pytest.mark.parametrize(
    ("sent", "time"),
    [
        (None, None),
        (2**63, None),
        (1_790_000_000_123, datetime(2026, 9, 21, 14, 13, 20, 123_000, UTC)),
    ],
)
def test_a_timestamp_may_be_missing_absurd_or_in_milliseconds(sent: int | None, time: datetime | None) -> None:
    assert event_of(timestamp=sent).time == time


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("url", "amqp://user:password@host/", "enter it as the source's secret"),
        ("url", "http://host", "amqps://"),
        ("url", "amqp://[", "must be an address"),
        ("queue", " ", "is required"),
    ],
)
def test_settings_that_cannot_work_are_named(field: str, value: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        settings_of(**{field: value})

    assert message in caught.value.errors[field]
