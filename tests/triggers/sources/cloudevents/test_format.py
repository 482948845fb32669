import base64
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent as ReferenceEvent
from cloudevents.v1.conversion import to_binary as older_to_binary
from cloudevents.v1.conversion import to_structured as older_to_structured
from cloudevents.v1.http import CloudEvent as OlderReferenceEvent
from hypothesis import given
from hypothesis import strategies as st

from agents.kernel.reserved_types import is_reserved
from runs.api.strict_json import is_storable
from triggers.sources.cloudevents.format import (
    BATCH,
    MOST_EVENTS,
    QUOTED,
    STRUCTURED,
    CloudEvent,
    InvalidEvent,
    UnsupportedMedia,
    _unquoted,
    read_message,
)
from triggers.sources.http.headers import Headers

PLAIN: dict[str, Any] = {"specversion": "1.0", "id": "A-1", "source": "/tides", "type": "tide.turned"}
BINARY = {f"ce-{name}": value for name, value in PLAIN.items()}


def structured(envelope: Any) -> CloudEvent:
    (event,) = read_message(Headers({"Content-Type": STRUCTURED}), json.dumps(envelope).encode()).events
    return event


def binary(headers: dict[str, str], body: bytes = b"", content_type: str = "application/json") -> CloudEvent:
    (event,) = read_message(Headers(BINARY | {"Content-Type": content_type} | headers), body).events
    return event


def refused(envelope: dict[str, Any], field: str, problem: str) -> None:
    with pytest.raises(InvalidEvent, match=problem) as refusal:
        structured(envelope)
    assert refusal.value.field == field


# --- What the reference library sends is understood ---

texts = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Cn"]),  # the specification's String, and a bit less
    min_size=1,
    max_size=80,
)
attributes = st.fixed_dictionaries(
    {
        "id": texts,
        "type": texts.filter(lambda type: not is_reserved(type)),
        "source": st.sampled_from(["/a", "https://tides.example/x?y=1#z", "urn:uuid:1-2", "%C3%A9"]),
    },
    optional={
        "subject": texts,
        "time": st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC)),
        "dataschema": st.just("https://tides.example/schema"),
        "traceparent": texts,
    },
)
data = st.dictionaries(
    st.text(st.characters(codec="ascii", exclude_characters="\0")), st.integers(0, 99) | st.booleans()
)


def same(event: CloudEvent, sent: ReferenceEvent) -> None:
    assert (event.id, event.source, event.type) == (sent.get_id(), sent.get_source(), sent.get_type())
    assert event.time == sent.get_time()
    assert event.subject == (sent.get_subject() or "")
    assert event.extensions.get("traceparent") == sent.get_extension("traceparent")
    assert event.data == sent.get_data()


@given(attributes, data)
def test_structured_mode_of_the_reference_library(attributes: dict[str, Any], data: dict[str, Any]) -> None:
    sent = ReferenceEvent({**attributes}, data)
    message = to_structured_event(sent)

    (event,) = read_message(Headers(message.headers), message.body).events

    same(event, sent)
    assert event.body == message.body


@given(attributes, data)
def test_binary_mode_of_the_reference_library(attributes: dict[str, Any], data: dict[str, Any]) -> None:
    sent = ReferenceEvent({**attributes, "datacontenttype": "application/json"}, data)
    message = to_binary_event(sent)

    (event,) = read_message(Headers(message.headers), message.body).events

    same(event, sent)
    assert event.body == message.body


@given(st.lists(st.tuples(attributes, data), max_size=4))
def test_batches_of_events_of_the_reference_library(items: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    sent = [ReferenceEvent({**attributes}, data) for attributes, data in items]
    body = b"[" + b",".join(to_structured_event(event).body for event in sent) + b"]"

    message = read_message(Headers({"content-type": f"{BATCH}; charset=utf-8"}), body)

    assert message.is_batch
    for event, original in zip(message.events, sent, strict=True):
        same(event, original)


@given(st.binary(min_size=1))
def test_binary_data_of_the_reference_library(raw: bytes) -> None:
    sent = ReferenceEvent({"id": "1", "source": "/a", "type": "t", "datacontenttype": "image/png"}, raw)

    in_body = to_binary_event(sent)
    in_json = to_structured_event(sent)

    for message in (in_body, in_json):
        (event,) = read_message(Headers(message.headers), message.body).events
        assert event.data_error or event.data == raw.decode()


def test_the_older_interface_of_the_reference_library() -> None:
    sent = OlderReferenceEvent({"source": "/a", "type": "t", "id": "1"}, {"a": 1})

    for headers, body in (older_to_binary(sent), older_to_structured(sent)):
        (event,) = read_message(Headers(headers), bytes(body)).events
        assert (event.id, event.data) == ("1", {"a": 1})


# --- No bytes do more than be refused ---


@given(
    st.dictionaries(
        st.sampled_from(["content-type", "ce-id", "ce-source", "ce-type", "ce-time", "ce-specversion", "ce-x"])
        | st.text(),
        st.text()
        | st.sampled_from([STRUCTURED, BATCH, "1.0", "application/json", "text/plain", "%C0%A0", '"a\\"', "%"]),
    ),
    st.binary() | st.sampled_from([b'{"\\ud800":null}', b"[[]]", b"[{}]", b"null", b"[" * 5000]),
)
def test_any_request_is_read_or_refused_by_name(headers: dict[str, str], body: bytes) -> None:
    try:
        read_message(Headers(headers), body)
    except InvalidEvent as refusal:
        assert refusal.problem and is_storable(str(refusal))
    except UnsupportedMedia as refusal:
        assert STRUCTURED in str(refusal)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from([*PLAIN, "time", "data", "data_base64", "datacontenttype", "x", "X"]) | st.text(), json_values
    )
)
def test_any_envelope_is_read_or_refused_by_name(members: dict[str, Any]) -> None:
    for items in (PLAIN | members, [PLAIN, PLAIN | members]):
        content_type = BATCH if isinstance(items, list) else STRUCTURED
        try:
            message = read_message(Headers({"content-type": content_type}), json.dumps(items).encode())
        except InvalidEvent as refusal:
            assert refusal.problem and is_storable(str(refusal))
        else:
            assert all(is_storable(event.id + event.source + event.type + event.subject) for event in message.events)


# --- The rules, one by one ---


def test_an_attribute_that_is_null_counts_as_unset() -> None:
    assert structured(PLAIN | {"subject": None, "time": None, "ext": None}).extensions == {}


def test_extensions_keep_their_types() -> None:
    assert structured(PLAIN | {"a": "x", "b": 2, "c": True}).extensions == {"a": "x", "b": 2, "c": True}


@pytest.mark.parametrize("name", list(PLAIN))
@pytest.mark.parametrize("value", [None, "", 1])
def test_the_required_attributes_are_required(name: str, value: object) -> None:
    refused(PLAIN | {name: value}, name, "is required|must be a non-empty string")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("specversion", "0.3", 'must be "1.0"'),
        ("id", "a\tb", "control characters"),
        ("id", "a" * 256, "longer than 255"),
        ("id", "\ufffe", "noncharacters"),
        ("id", "\ud800", "surrogates"),
        ("type", "\0", "control characters"),
        ("source", "two words", "URI reference"),
        ("source", "/a%zz", "URI reference"),
        ("subject", "", "must be a non-empty string"),
        ("subject", "a" * 1025, "longer than 1024"),
        ("subject", "\U00020000" * 651, "longer than 2,600 bytes"),
        ("time", "yesterday", "RFC 3339"),
        ("time", "2026-02-30T00:00:00Z", "not a valid date"),
        ("time", 1795176000, "must be a non-empty string"),
        ("dataschema", "/relative", "absolute URI"),
        ("datacontenttype", "json", "media type"),
        ("Upper", "x", "lower-case"),
        ("with-dash", "x", "lower-case"),
        ("", "x", "lower-case"),
        ("ext", 2**31, "32 bits"),
        ("ext", 1.5, "string, a boolean or an integer"),
        ("ext", {}, "string, a boolean or an integer"),
        ("ext", "a" * 4097, "longer than 4096"),
        ("data", "\0", "PostgreSQL cannot store"),
        ("data", {"a": ["\ud800"]}, "PostgreSQL cannot store"),
        ("data_base64", "???", "base64"),
        ("data_base64", 5, "must be a string"),
        ("data_base64", base64.b64encode(b"{").decode(), "not JSON"),
    ],
)
def test_a_broken_rule_names_its_field(name: str, value: object, problem: str) -> None:
    refused(PLAIN | {name: value}, name, problem)


def test_data_and_data_base64_exclude_each_other() -> None:
    refused(PLAIN | {"data": 1, "data_base64": "MQ=="}, "data_base64", "cannot be combined with data")


def test_data_that_is_no_json_must_be_a_string() -> None:
    assert structured(PLAIN | {"datacontenttype": "text/xml", "data": "<a/>"}).data == "<a/>"
    refused(PLAIN | {"datacontenttype": "text/xml", "data": {}}, "data", "must be a string")


def test_json_in_base64_is_read_and_an_image_is_kept_raw() -> None:
    encoded = base64.b64encode(b'{"a": 1}').decode()

    assert structured(PLAIN | {"datacontenttype": "application/x+json", "data_base64": encoded}).data == {"a": 1}
    image = structured(PLAIN | {"datacontenttype": "image/png", "data_base64": base64.b64encode(b"\x89PNG").decode()})
    assert (image.data, image.data_error) == (None, "kept raw: image/png")


@pytest.mark.parametrize("body", [b"[]", b"1", b'"x"', b"{", b'{"id": 1, "id": 2}', b"\xff", b'{"a": NaN}'])
def test_a_body_that_is_no_event_names_the_body(body: bytes) -> None:
    with pytest.raises(InvalidEvent) as refusal:
        read_message(Headers({"content-type": STRUCTURED}), body)
    assert refusal.value.field == "body"


def test_header_values_are_unquoted_and_decoded_once() -> None:
    event = binary(
        {
            "ce-id": "Euro%20%E2%82%AC%20%F0%9F%98%80",
            "ce-subject": '"a \\"b\\" c"',
            "ce-ext": "100%2525",
            "ce-old": "Süd".encode().decode("latin-1"),
        }
    )

    assert event.id == "Euro € 😀"
    assert event.subject == 'a "b" c'
    assert event.extensions == {"ext": "100%25", "old": "Süd"}


@pytest.mark.parametrize("value", ["%C0%A0", "%FF", "100%", "%zz", "\xff"])
def test_header_values_that_are_not_percent_encoded_utf8_are_refused(value: str) -> None:
    with pytest.raises(InvalidEvent, match="percent-encoded") as refusal:
        binary({"ce-subject": value})
    assert refusal.value.field == "subject"


def test_the_content_type_is_the_datacontenttype() -> None:
    assert binary({}, b"<a/>", "text/xml").data == "<a/>"
    assert binary({}, b'{"a": 1}', "application/json; charset=utf-8").data == {"a": 1}
    assert binary({}, b"").data is None
    with pytest.raises(InvalidEvent, match="Content-Type"):
        binary({"ce-datacontenttype": "text/xml"})


@pytest.mark.parametrize("body", [b"{", b'{"a": "\\u0000"}', b'{"a": 1, "a": 2}', b"[Infinity]"])
def test_json_data_that_cannot_be_stored_names_data(body: bytes) -> None:
    with pytest.raises(InvalidEvent) as refusal:
        binary({}, body)
    assert refusal.value.field == "data"


def test_without_a_content_type_the_data_is_json() -> None:
    (event,) = read_message(Headers(BINARY), b'{"a": 1}').events

    assert event.data == {"a": 1}


@pytest.mark.parametrize(
    "headers",
    [{}, {"content-type": "application/json"}, {"content-type": "application/cloudevents+xml"},
     BINARY | {"content-type": "application/cloudevents+avro"}],
)  # fmt: skip
def test_an_unsupported_content_type_is_refused_with_the_accepted_formats(headers: dict[str, str]) -> None:
    with pytest.raises(UnsupportedMedia, match="ce-specversion, ce-id, ce-source and ce-type"):
        read_message(Headers(headers), b"{}")


def test_some_ce_headers_make_it_an_event_that_lacks_the_others() -> None:
    with pytest.raises(InvalidEvent) as refusal:
        read_message(Headers({"ce-id": "1", "ce-specversion": "1.0"}), b"{}")
    assert refusal.value.field == "source"


# --- Batches ---


def batch(items: Any) -> tuple[CloudEvent, ...]:
    return read_message(Headers({"content-type": BATCH}), json.dumps(items).encode()).events


def test_an_empty_batch_is_a_batch() -> None:
    assert batch([]) == ()


def test_a_batch_is_refused_whole_and_names_index_and_field() -> None:
    with pytest.raises(InvalidEvent) as refusal:
        batch([PLAIN, PLAIN | {"time": "noon"}, {}])

    assert (refusal.value.index, refusal.value.field) == (1, "time")
    assert str(refusal.value).startswith("event 1, time: must be an RFC 3339 timestamp")


def test_a_batch_holds_a_bounded_number_of_events() -> None:
    assert len(batch([PLAIN] * MOST_EVENTS)) == MOST_EVENTS
    with pytest.raises(InvalidEvent, match="at most 1000"):
        batch([PLAIN] * (MOST_EVENTS + 1))


@pytest.mark.parametrize("items", [{}, None, "x"])
def test_a_batch_is_an_array(items: object) -> None:
    with pytest.raises(InvalidEvent, match="array"):
        batch(items)


def test_the_same_event_in_another_batch_has_the_same_bytes() -> None:
    (first, _), (again,) = batch([PLAIN, PLAIN | {"id": "B"}]), batch([PLAIN])

    assert first.body == again.body


@pytest.mark.parametrize("value", ['"' * 49_200, '"\\' * 24_600, '"' + '\\"' * 24_600, "%41" * 16_400])
def test_a_header_beyond_every_attributes_length_is_refused_unread(value: str) -> None:
    with pytest.raises(InvalidEvent, match="foo: is longer than 4096 characters"):
        binary({"ce-foo": value})


@pytest.mark.parametrize("value", ['"' * 49_200, '"\\' * 24_600, '"' + '\\"' * 24_600, 'a"b\\c"d\\"e'])
def test_quotes_are_undone_in_one_pass_and_unterminated_ones_stay(value: str) -> None:
    """As long as a header of 49 KB may be: beginning again at each quote, this took minutes."""
    assert len(QUOTED.sub(_unquoted, value)) <= len(value)


@given(st.text('"\\ab%', max_size=30))
def test_quoted_header_values_are_unquoted_by_the_rules_of_the_binding(value: str) -> None:
    reference = re.compile(r'"((?:[^"\\]|\\.)*)"')

    assert QUOTED.sub(_unquoted, value) == reference.sub(lambda quoted: re.sub(r"\\(.)", r"\1", quoted[1]), value)
