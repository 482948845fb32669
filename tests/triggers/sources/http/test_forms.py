import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.forms import multipart
from triggers.sources.http.forms import File, Form, NoForm, parse_form
from triggers.sources.http.headers import Headers

URLENCODED = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}


def read(body: bytes, headers: dict[str, str]) -> Form:
    return parse_form(Headers(headers), body)


def test_fields_and_files_of_a_multipart_form_are_read() -> None:
    body, headers = multipart(
        {"text": "Grüße\r\n", "empty": ""}, ("ü.pdf", "application/pdf", b"\x00\xff\r\n"), ("b", "", b"")
    )

    form = read(body, headers)

    assert (form.text("text"), form.text("empty"), form.text("none")) == ("Grüße\r\n", "", "")
    assert form.files == (
        File(name="ü.pdf", type="application/pdf", content=b"\x00\xff\r\n"),
        File(name="b", type="", content=b""),
    )


def test_fields_of_an_urlencoded_form_are_read() -> None:
    form = read(b"text=Gr%C3%BC%C3%9Fe+%26&empty=&text=last", URLENCODED)

    assert (form.text("text"), form.fields["empty"]) == ("last", b"")


def test_each_field_has_a_charset_of_its_own_and_no_character_that_cannot_be_stored() -> None:
    body, headers = multipart({"a": "ü".encode("latin-1"), "b": "ü".encode("shift_jis", "replace"), "c": "a\x00b"})

    form = read(body, headers)

    assert form.text("a", "iso-8859-1") == "ü"
    assert form.text("a", "no-such") == form.text("a") == "\ufffd"
    assert form.text("c") == "a\ufffdb"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"", {"Content-Type": "multipart/form-data"}),
        (b"x", {"Content-Type": "multipart/form-data; boundary="}),
        (b"x", {"Content-Type": "multipart/form-data; boundary=\xff"}),
        (multipart({str(number): "" for number in range(1_100)})),
        (multipart({}, *(("a", "b", b"") for _ in range(200)))),
        ("a=ü".encode(), URLENCODED),
        (b"&".join([b"a=1"] * 1_100), URLENCODED),
        pytest.param(b"a=" + b"%41" * 2_000_001, URLENCODED, id="escapes"),
    ],
)
def test_a_body_that_is_no_form_or_has_too_many_parts_is_refused(body: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(NoForm):
        read(body, headers)


@given(
    st.binary(max_size=300), st.sampled_from(["multipart/form-data; boundary=a", "application/x-www-form-urlencoded"])
)
def test_any_bytes_are_a_form_or_none(body: bytes, content_type: str) -> None:
    for piece in (body, b"--a\r\nContent-Disposition: form-data; name=a\r\n" + body, b"--a\r\n" + body + b"\r\n--a--"):
        try:
            assert read(piece, {"Content-Type": content_type}).fields is not None
        except NoForm as error:
            assert str(error)
