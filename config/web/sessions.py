"""End a session after WAKEFUL_SESSION_IDLE without use, and in any case after LONGEST."""

import time
from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.contrib.auth import SESSION_KEY, logout
from django.http import HttpRequest, HttpResponse

LONGEST = timedelta(days=7)
NOTED_EVERY = timedelta(minutes=1)  # or a twentieth of the limit, if that is less
GIVEN = "password_given"  # in the session: when


class EndIdleSessions:
    """Middleware. Only actions of a person count as use, not an open page that reloads itself."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if settings.SESSION_COOKIE_NAME in request.COOKIES and SESSION_KEY in request.session:
            _note_use(request)
        return self.get_response(request)


def note_password(request: HttpRequest) -> None:
    """The session's user has just given the right password."""
    request.session[GIVEN] = time.time()


def _note_use(request: HttpRequest) -> None:
    session, now = request.session, time.time()
    idle = settings.WAKEFUL_SESSION_IDLE.total_seconds()
    seen = session.get("seen", now)
    if now - session.get("began", now) > LONGEST.total_seconds() or now - seen > idle:
        logout(request)
        return
    polls = request.method == "GET" and "HX-Request" in request.headers
    if "began" not in session:
        session.update({"began": now, "seen": now})
    elif not polls and now - seen > min(NOTED_EVERY.total_seconds(), idle / 20):
        session["seen"] = now
