from io import BytesIO

import pytest
from django.core.handlers.wsgi import WSGIRequest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from runs.api.body import LengthRequired, TooLarge, read_body


class BrokenOff(BytesIO):
    def read(self, size: int | None = -1) -> bytes:
        raise OSError("connection reset by peer")


def request(body: BytesIO, **environ: str) -> WSGIRequest:
    return WSGIRequest({"REQUEST_METHOD": "POST", "PATH_INFO": "/", "wsgi.input": body, **environ})


@given(st.binary())
def test_the_body_is_read_as_sent(body: bytes) -> None:
    assert read_body(request(BytesIO(body), CONTENT_LENGTH=str(len(body)))) == body


@given(st.text(max_size=20))
def test_any_length_is_a_number_or_refused(length: str) -> None:
    try:
        read_body(request(BytesIO(), CONTENT_LENGTH=length))
    except LengthRequired:
        assert not length.isascii() or not length.isdigit()
    except (ParseError, TooLarge):
        assert int(length) > 0


def test_a_body_shorter_than_announced_is_refused() -> None:
    with pytest.raises(ParseError, match="not as long"):
        read_body(request(BytesIO(b"{}"), CONTENT_LENGTH="3"))


def test_a_body_that_breaks_off_is_refused() -> None:
    with pytest.raises(ParseError, match="is incomplete"):
        read_body(request(BrokenOff(b"{}"), CONTENT_LENGTH="2"))


def test_bytes_beyond_the_announced_length_are_not_the_bodys() -> None:
    assert read_body(request(BytesIO(b"{} smuggled"), CONTENT_LENGTH="2")) == b"{}"


def test_a_chunked_body_is_refused_whatever_length_it_claims() -> None:
    with pytest.raises(LengthRequired):
        read_body(request(BytesIO(b"{}"), CONTENT_LENGTH="2", HTTP_TRANSFER_ENCODING="chunked"))
