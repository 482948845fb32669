import json
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent as ReferenceEvent
from django.test import Client
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from pytest_django import Settings

from tests.support.examples import some_of
from triggers.api.tokens import create_token
from triggers.models import ApiToken, Event, Redelivery, Source
from triggers.sources.cloudevents.format import BATCH, STRUCTURED

PLAIN: dict[str, Any] = {"specversion": "1.0", "id": "A-1", "source": "/tides", "type": "tide.turned"}

pytestmark = [pytest.mark.sampled, pytest.mark.django_db, pytest.mark.urls("tests.triggers.sources.urls")]


@pytest.fixture
def token() -> str:
    return create_token("sensor", ["triggers.add_event"], by="test")[1]


def post(token: str, body: Any, content_type: str = STRUCTURED, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Client().generic(
        "POST",
        "/api/v1/events/",
        raw,
        content_type,
        headers={
            "Authorization": f"Bearer {token}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        },
        CONTENT_LENGTH=str(len(raw)),
    )


def test_a_structured_event_is_recorded_under_the_tokens_own_source(token: str) -> None:
    answer = post(token, PLAIN | {"subject": "north", "time": "2026-11-20T10:00:00+01:00", "data": {"cm": 212}})

    event = Event.objects.get()
    assert (answer.status_code, answer.json()) == (202, {"event": str(event.id), "duplicate": False})
    assert event.source == ApiToken.objects.get().source
    assert (event.ce_source, event.ce_id, event.type, event.subject) == ("/tides", "A-1", "tide.turned", "north")
    assert event.data == {"cm": 212}
    assert event.time is not None and event.time.isoformat() == "2026-11-20T09:00:00+00:00"
    assert event.headers is not None and event.headers["authorization"] == "[redacted]"


def test_the_same_event_again_is_a_duplicate(token: str) -> None:
    first = post(token, PLAIN)

    again, other_body = post(token, PLAIN), post(token, PLAIN | {"data": 1})

    for answer in (again, other_body):
        assert (answer.status_code, answer.json()) == (200, {"event": first.json()["event"], "duplicate": True})
    assert list(Redelivery.objects.order_by("id").values_list("differs", flat=True)) == [False, True]


def test_another_tokens_event_of_the_same_name_is_another_event(token: str) -> None:
    other = create_token("other", ["triggers.add_event"], by="test")[1]

    assert [post(one, PLAIN).status_code for one in (token, other)] == [202, 202]


def test_both_modes_of_the_reference_library_are_recorded(token: str) -> None:
    attributes = {"type": "tide.turned", "source": "https://tides.example/north", "subject": "Süd €"}

    for number, write in enumerate((to_structured_event, to_binary_event)):
        message = write(
            ReferenceEvent({**attributes, "id": str(number), "datacontenttype": "application/json"}, {"cm": number})
        )
        headers = {name.replace("-", "_"): value for name, value in message.headers.items() if name != "content-type"}
        answer = post(token, message.body, message.headers["content-type"], **headers)
        assert answer.status_code == 202

    assert [(event.subject, event.data) for event in Event.objects.order_by("seq")] == [
        ("Süd €", {"cm": 0}),
        ("Süd €", {"cm": 1}),
    ]


def test_a_batch_is_answered_in_order_with_its_duplicates(token: str) -> None:
    first = post(token, PLAIN | {"id": "B"}).json()["event"]

    answer = post(token, [PLAIN | {"id": id_} for id_ in ("A", "B", "C", "A")], BATCH)

    assert answer.status_code == 202
    results = answer.json()
    assert [result["duplicate"] for result in results] == [False, True, False, True]
    assert results[1]["event"] == first
    assert results[3]["event"] == results[0]["event"]
    assert list(Event.objects.order_by("seq").values_list("ce_id", flat=True)) == ["B", "A", "C"]


def test_a_batch_of_one_and_of_none_is_answered_by_a_list(token: str) -> None:
    one, none = post(token, [PLAIN], BATCH), post(token, [], BATCH)

    assert (one.status_code, len(one.json())) == (202, 1)
    assert (none.status_code, none.json()) == (202, [])


def test_a_batch_is_refused_whole_with_index_and_field(token: str) -> None:
    answer = post(token, [PLAIN, PLAIN | {"id": "B", "time": "noon"}], BATCH)

    assert answer.status_code == 400
    assert (answer.json()["index"], answer.json()["field"]) == (1, "time")
    assert answer.json()["detail"].startswith("event 1, time: must be an RFC 3339 timestamp")
    assert not Event.objects.exists()


def test_a_broken_event_names_its_field(token: str) -> None:
    answer = post(token, {name: value for name, value in PLAIN.items() if name != "source"})

    assert (answer.status_code, answer.json()) == (400, {"detail": "source: is required", "field": "source"})


@pytest.mark.parametrize("body", [b"{", b'{"a":1,"a":1}', b"[NaN]", b'"\\ud800"', b"\xff", b"[" * 10_000])
def test_a_broken_body_is_400(token: str, body: bytes) -> None:
    answer = post(token, body)

    assert (answer.status_code, answer.json()["field"]) == (400, "body")


def test_plain_json_is_415_with_the_accepted_formats(token: str) -> None:
    answer = post(token, {"hello": "world"}, "application/json")

    assert answer.status_code == 415
    assert "application/cloudevents+json" in answer.json()["detail"]


def test_without_a_token_it_is_401_and_without_permission_403(token: str) -> None:
    reader = create_token("reader", ["triggers.view_event"], by="test")[1]

    statuses = [post(one, PLAIN).status_code for one in ("", "wkf_guess", reader, token)]

    assert statuses == [401, 401, 403, 202]


def test_a_token_whose_source_is_disabled_is_404(token: str) -> None:
    Source.objects.filter(kind="api").update(enabled=False)

    assert post(token, PLAIN).status_code == 404


def test_length_and_backlog_are_checked_as_for_webhooks(token: str, settings: Settings) -> None:
    settings.WAKEFUL_MAX_BODY = 10
    assert post(token, PLAIN).status_code == 413

    settings.WAKEFUL_MAX_BODY, settings.WAKEFUL_MAX_BACKLOG = 1000, 0
    Event.objects.create(
        id="01a1fd93-16e6-725e-a37c-ea1644fff743", root_id="01a1fd93-16e6-725e-a37c-ea1644fff743",
        source=Source.objects.get(kind="api"), ce_source="/", ce_id="1", type="t",
    )  # fmt: skip
    answer = post(token, PLAIN)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    members=st.dictionaries(
        st.sampled_from([*PLAIN, "time", "subject", "data", "datacontenttype", "ext"]),
        json_values | st.just("2026-01-01T00:00:00Z"),
    ),
    as_batch=st.booleans(),
)
@examples(max_examples=some_of(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_accepted_event_can_be_stored(token: str, members: dict[str, Any], as_batch: bool) -> None:
    event = PLAIN | members

    answer = post(token, [event] if as_batch else event, BATCH if as_batch else STRUCTURED)

    assert answer.status_code in (200, 202, 400)
