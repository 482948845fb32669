import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runs.api.strict_json import MAX_DEPTH, MAX_VALUES, Unreadable, parse_json, require_storable
from triggers.sources.http.payload import Payload, read_form, read_payload

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="ascii"), max_size=5), inner)
    ),
    max_leaves=20,
)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_kept_raw_with_a_reason(body: bytes) -> None:
    payload = read_payload(body)

    assert payload.data is None or payload.error == ""
    assert payload.error == "" or payload.error.startswith("kept raw: ")


@given(json_values)
def test_ordinary_json_is_read_as_it_is(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@given(st.text())
def test_any_text_in_a_document_is_readable_or_refused(text: str) -> None:
    payload = read_payload(json.dumps({text: [text]}).encode())

    if "\0" in text:
        assert "PostgreSQL cannot store" in payload.error
    else:
        assert payload.data == {text: [text]}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"{", "not JSON"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b'{"a": 1, "a": 2}', "duplicate name in an object: members 1 and 2"),
        (b'[{"b": {"a": 1, "c": 1, "c": 1}}]', "duplicate name in an object: members 2 and 3"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[1e999]", "a number beyond the range of a double"),
        (b"[18446744073709551616]", "an integer beyond 64 bits"),
        (b"9" * 1_000_000, "an integer beyond 64 bits"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 100_000, "nested deeper"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested deeper"),
        (b'"\\u0000"', "contains \\u0000 or an unpaired surrogate"),
        (b'{"\\u0000": 1}', "contains \\u0000 or an unpaired surrogate"),
        (b'[["\\ud800"]]', "contains \\u0000 or an unpaired surrogate"),
    ],
)
def test_a_body_that_cannot_be_stored_is_kept_raw_with_the_reason(body: bytes, reason: str) -> None:
    payload = read_payload(body)

    assert payload.data is None
    assert payload.error.startswith(f"kept raw: {reason}")


def test_depth_up_to_the_limit_is_read() -> None:
    assert read_payload(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH).error == ""


def test_a_surrogate_pair_is_a_character() -> None:
    assert read_payload(b'"\\ud83d\\ude00"') == Payload(data="\U0001f600")


def test_an_escaped_backslash_before_u0000_is_no_null_character() -> None:
    assert read_payload(b'"\\\\u0000"') == Payload(data="\\u0000")


def test_no_body_is_no_data_and_no_mistake() -> None:
    assert read_payload(b"") == Payload()


def test_a_byte_order_mark_is_ignored() -> None:
    assert parse_json(b"\xef\xbb\xbf[1]") == [1]


def test_a_lone_surrogate_is_refused_wherever_it_stands() -> None:
    with pytest.raises(Unreadable):
        require_storable({"a": [{"\udc00": 1}]})


# --- What a sender can make it cost ---


def test_a_repeated_name_among_very_many_is_found_in_one_pass() -> None:
    """By a count of each name this would be ten thousand million comparisons."""
    names = b",".join(b'"%d":0' % number for number in range(100_000))

    with pytest.raises(Unreadable, match="members 100000 and 100001"):
        parse_json(b"{" + names + b',"99999":0}')


def test_the_reason_holds_nothing_of_the_payload() -> None:
    """It is stored beside the event, where an erasure of the payload does not look."""
    assert "ada" not in read_payload(b'{"ada@example.com": 1, "ada@example.com": 2}').error


@pytest.mark.parametrize("body", [b"[%b]" % b",".join([b"[]"] * MAX_VALUES), b"[" + b"0," * MAX_VALUES + b"0]"])
def test_a_document_of_too_many_values_is_refused_before_it_is_parsed(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.api.strict_json.json.loads", lambda *args, **kwargs: pytest.fail("parsed"))

    with pytest.raises(Unreadable, match="more than 1,000,000 values"):
        parse_json(body)


def test_commas_and_brackets_in_texts_are_no_values() -> None:
    text = '[{,"\\' * 200_000

    assert parse_json(json.dumps([text]).encode()) == [text]


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 500_000 + b"," * MAX_VALUES, b'["\\' + b"," * MAX_VALUES + b"\\"])
def test_an_unterminated_text_is_searched_once(body: bytes) -> None:
    """By a search that began again at each quote this would take hours."""
    with pytest.raises(Unreadable, match="not JSON"):
        parse_json(body)


def test_a_form_is_an_object_of_its_fields() -> None:
    payload = read_form(b"Body=O%C3%B9%3F+%2B1&empty=&list=1&list=2")

    assert payload == Payload(data={"Body": "Où? +1", "empty": "", "list": ["1", "2"]})
    assert read_form(b"") == Payload()


@pytest.mark.parametrize("body", [b"no form", b"a=%ff", b"a=%00", b"a=\xff", "a=ü".encode(), b"a=1&" * 1001])
def test_a_form_that_cannot_be_read_or_stored_is_kept_raw(body: bytes) -> None:
    payload = read_form(body)

    assert payload.data is None and payload.error.startswith("kept raw: ")
