"""A page of DEBUG shows no secret, wherever it stands."""

import sys
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory
from pytest_django import Settings

from agents.kernel import redaction
from config.env import Knob
from config.web.error_pages import Reporter
from config.web.request_texts import KnowWhatIsSaid
from tests.support.secrets import forgotten
from tests.support.stack import StackMaker, eventually

__all__ = ["forgotten"]

SECRETS = {
    "SECRET_KEY": "s3cret-key-<>-" + "x" * 50,
    "WAKEFUL_ENCRYPTION_KEYS": "ZmVybmV0LWtleS1mb3ItdGhpcy10ZXN0LW9ubHktMTI=",
    "WAKEFUL_ADMIN_PASSWORD": "adm1n-passw0rd",
    "WAKEFUL_API_TOKEN": "wkf_t0ken-of-the-environment",
    "WAKEFUL_ALARM_URL": "https://hooks.example.org/s3cret-alarm-path",
    "WAKEFUL_HEARTBEAT_URL": "https://ping.example.org/s3cret-ping-path",
    "REDIS_URL": "redis://:redis-passw0rd@127.0.0.1:1/0",
    "DATABASE_URL": "postgres://app:postgres-passw0rd@127.0.0.1:1/none",
    "HTTP_PROXY": "http://corp:proxy-passw0rd@127.0.0.1:1",
}  # fmt: skip


def test_a_page_of_the_real_web_process_shows_none(make_stack: StackMaker) -> None:
    stack = make_stack()
    stack.start("web", wait=False, env={**SECRETS, "DEBUG": "true"})

    def page() -> str:
        try:
            answer = stack.request("GET", "/metrics")  # reads the database, which is not there
        except OSError:
            return ""
        return answer.body.decode() if answer.status == 500 else ""

    shown = eventually(page)

    assert "OperationalError" in shown
    parts = [*SECRETS.values(), "redis-passw0rd", "postgres-passw0rd", "proxy-passw0rd", "s3cret-alarm", "s3cret-ping"]
    assert [part for part in parts if part in shown] == []


SHAPES: dict[str, Callable[[str], object]] = {
    "text": lambda secret: secret,
    "words": lambda secret: [secret],
    "database": lambda secret: {"PASSWORD": secret},
    "url": lambda secret: f"redis://app:{secret}@host/0",
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_in_a_local_variable_is_blotted_out(settings: Settings, shape: str) -> None:
    secret = f"{uuid4().hex}'&<"
    settings.KNOBS = [Knob(name="K", default="", meaning="m", value=SHAPES[shape](secret), secret=True)]
    try:
        innocent = {"name": [secret]}
        raise RuntimeError(f"it broke: {innocent}")
    except RuntimeError:
        reporter = Reporter(RequestFactory().get("/"), *sys.exc_info())

    for report in (reporter.get_traceback_html(), reporter.get_traceback_text()):
        assert "it broke" in report
        assert secret[:20] not in report


def test_a_guess_in_the_request_stays_also_in_local_variables(settings: Settings, forgotten: None) -> None:
    """With DEBUG, whoever causes an error reads the page."""
    secret, guess = "Summer-2026-house", "Winter-2025-house"
    settings.KNOBS = [Knob(name="K", default="", meaning="m", value=secret, secret=True)]
    redaction.know(secret)

    def report(query: str) -> str:
        def fail(request: HttpRequest) -> HttpResponse:
            try:
                words = request.GET["q"].split()
                raise RuntimeError(f"it broke: {words}")
            except RuntimeError:
                return HttpResponse(Reporter(request, *sys.exc_info()).get_traceback_html())

        return KnowWhatIsSaid(fail)(RequestFactory().get("/", {"q": query})).content.decode()

    assert report(secret).replace(secret, guess).count(guess) == report(guess).count(guess) > 3


def test_a_knob_does_not_print_its_value() -> None:
    assert "hidden" not in repr(Knob(name="K", default="", meaning="m", value="hidden", secret=True))
