import json
from io import BytesIO
from uuid import uuid4

import pytest
from django.core.handlers.wsgi import WSGIRequest
from hypothesis import given
from hypothesis import strategies as st
from rest_framework.exceptions import ParseError

from runs.api.body import MOST, LengthRequired, TooLarge, read_body
from tests.support.api import Api
from tests.support.console import make_source
from tests.support.triggers import make_trigger


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
    with pytest.raises(ParseError, match="not that of Content-Length"):
        read_body(request(BytesIO(b"{}"), CONTENT_LENGTH="3"))


def test_a_body_that_breaks_off_is_refused() -> None:
    with pytest.raises(ParseError, match="is incomplete"):
        read_body(request(BrokenOff(b"{}"), CONTENT_LENGTH="2"))


def test_bytes_beyond_the_announced_length_are_not_the_bodys() -> None:
    assert read_body(request(BytesIO(b"{} smuggled"), CONTENT_LENGTH="2")) == b"{}"


def test_a_chunked_body_is_refused_whatever_length_it_claims() -> None:
    with pytest.raises(LengthRequired):
        read_body(request(BytesIO(b"{}"), CONTENT_LENGTH="2", HTTP_TRANSFER_ENCODING="chunked"))


def posted(path: str, body: object) -> tuple[int, bytes]:
    answer = Api(name=f"ci-{uuid4().hex}").client.post(
        f"/api/v1/{path}", json.dumps(body), content_type="application/json"
    )
    return answer.status_code, answer.content


@pytest.mark.django_db
def test_unknown_fields_are_named_up_to_ten() -> None:
    status, answer = posted("schedules/preview/", {f"a{number}": 1 for number in range(20_000)})

    assert (status, len(answer) < 5_000) == (400, True)
    named = json.loads(answer)
    assert named["a0"] == named["a9"] and named["a0"][0].startswith("Unknown field. Known here: kind")
    assert named["…"] == ["19,990 more are unknown."] and len(named) == 11
    assert len(posted("schedules/preview/", {"x" * 500_000: 1})[1]) < 5_000


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("replays/", {"triggers": ["a"] * 200_000}),  # each would be looked for in the database
        ("replays/", {"field": [[]] * 200_000}),
        ("checklists/", {"agent": "a", "items": [{}] * 200_000}),
        ("sources/load/samples/", {"samples": [{}] * 1_000_000}),
        ("subscriptions/", {"slug": "x", "url": "x", "types": [{}] * 1_000}),
        ("checklists/", {"agent": "a", "items": [{f"b{number}": 1 for number in range(100)}] * 100}),
    ],
)
def test_no_answer_is_much_longer_than_what_was_wrong(path: str, body: object) -> None:
    make_source("load", kind="pushed")
    status, answer = posted(path, body)
    assert status == 400
    assert len(answer) < 60_000


@pytest.mark.django_db
def test_the_fault_of_a_later_element_is_named_at_its_place() -> None:
    items = [{"text": "look"}] * 30 + [{}]
    _, answer = posted("checklists/", {"agent": "a", "items": items})
    assert json.loads(answer)["items"]["30"] == {"text": ["This field is required."]}


@pytest.mark.django_db
def test_a_body_without_data_of_its_own_has_a_megabyte_at_most() -> None:
    make_trigger()
    large = "x" * (MOST + 1)
    assert posted("replays/", {"type": large})[0] == 413
    assert posted("schedules/preview/", {"when": "every day", "data": large})[0] == 413
    assert posted("triggers/greeter/pause/", {"reason": large})[0] == 413
    assert posted("triggers/greeter/fire/", {"data": large})[0] == 202
