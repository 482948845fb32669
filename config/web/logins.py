"""Limits failed logins, and records logins in the audit log.

Failures are counted in PostgreSQL by user name and origin. After LIMIT failures within WINDOW an origin may not log in with
that name, and after LIMIT_OF_ORIGIN with no name; passwords are not checked meanwhile. So strangers only lock out their own
address. A browser that has logged in before is its own origin, so that strangers at the same address do not lock out its
user. The rate of password hashing is limited too (config.web.passwords), which limits the number of rows.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import structlog
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.core import signing
from django.dispatch import receiver
from django.http import HttpRequest, HttpResponse
from django.utils.crypto import get_random_string, salted_hmac

from config.web.clients import address_of, network_of
from config.web.passwords import KNOWN, LANE, STRANGERS, Busy
from config.web.sessions import note_password
from runs.db.sql import execute, fetch
from runs.models.audit import record, record_about
from runs.users import name_in, user_named

log = structlog.get_logger(__name__)

LIMIT = 10
LIMIT_OF_ORIGIN = 50
WINDOW = timedelta(minutes=10)
COOKIE = "wakeful_browser"
COOKIE_AGE = timedelta(days=180)
SALT = "config.logins"

FAILED = """
INSERT INTO config_loginfailure AS counted (name, origin, failures) VALUES (%(name)s, %(origin)s, 1)
ON CONFLICT (name, origin) DO UPDATE SET
  failures = CASE WHEN counted.since < clock_timestamp() - %(window)s::interval THEN 1 ELSE counted.failures + 1 END,
  since = CASE WHEN counted.since < clock_timestamp() - %(window)s::interval THEN clock_timestamp() ELSE counted.since END
RETURNING failures
"""
REFUSED_FOR = """
SELECT extract(epoch FROM since + %(window)s::interval - clock_timestamp())::float8 FROM config_loginfailure
WHERE origin = %(origin)s AND (name = %(name)s AND failures >= %(limit)s::int OR name = '' AND failures >= %(limit_of_origin)s::int)
  AND since >= clock_timestamp() - %(window)s::interval
ORDER BY 1 DESC LIMIT 1
"""
FORGET = "DELETE FROM config_loginfailure WHERE origin = %(origin)s AND name = %(name)s"


class Refused(Exception):
    """Too many failed logins: try again after `seconds`."""

    def __init__(self, seconds: float) -> None:
        super().__init__("too many failed logins")
        self.seconds = seconds


@dataclass(frozen=True)
class Attempt:
    """A login attempt: the user name, hashed because people type passwords there by mistake, and its origin."""

    name: str
    origin: str

    @classmethod
    def of(cls, request: HttpRequest, username: object) -> "Attempt":
        name = salted_hmac(SALT, str(username).strip().lower(), algorithm="sha256").hexdigest()
        known = _known_browser(request, name)
        return cls(name, f"browser {known}" if known else network_of(address_of(request)))

    @property
    def is_of_known_browser(self) -> bool:
        return self.origin.startswith("browser ")

    def refused_for(self) -> float:
        """Seconds until a password is checked again; 0: now."""
        limits = {"limit": LIMIT, "limit_of_origin": LIMIT_OF_ORIGIN}
        found = fetch(REFUSED_FOR, {"name": self.name, "origin": self.origin, "window": WINDOW, **limits})
        return float(found[0][0]) if found else 0.0

    def fail(self) -> int:
        """Count a failure; returns the failures of this name and origin within the window."""
        fetch(FAILED, {"name": "", "origin": self.origin, "window": WINDOW})
        [(failures,)] = fetch(FAILED, {"name": self.name, "origin": self.origin, "window": WINDOW})
        return int(failures)

    def succeed(self) -> None:
        execute(FORGET, {"name": self.name, "origin": self.origin})


class Brake:
    """The first authentication backend: prevents the password check while the attempt is refused."""

    def authenticate(self, request: HttpRequest | None, username: str | None = None, **credentials: Any) -> None:
        name = username or name_in(credentials)
        if request is None or not name:
            return
        attempt = Attempt.of(request, name)
        if seconds := attempt.refused_for():
            raise Refused(seconds)
        LANE.set(KNOWN if attempt.is_of_known_browser else STRANGERS)


class AnswerRefusals:
    """Middleware: answers 429 for a refused login or too many at once, and sets a cookie for browsers that have logged in."""

    said: ClassVar[dict[type[Exception], str]] = {
        Refused: "Too many failed logins. Try again in {seconds} s.\n",
        Busy: "Too many logins at once. Try again in {seconds} s.\n",
    }

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = LANE.set(STRANGERS)
        try:
            response = self.get_response(request)
        finally:
            LANE.reset(token)
        if value := getattr(request, "browser_to_know", None):
            response.set_cookie(
                COOKIE, value, max_age=COOKIE_AGE, httponly=True, samesite="Lax", secure=request.is_secure()
            )
        return response

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, (Refused, Busy)):
            return None
        seconds = int(exception.seconds) + 1
        text = self.said[type(exception)].format(seconds=seconds)
        return HttpResponse(text, status=429, content_type="text/plain", headers={"Retry-After": str(seconds)})


@receiver(user_logged_in)
def note_login(sender: Any, request: HttpRequest, user: AbstractBaseUser, **_: Any) -> None:
    note_password(request)
    attempt = Attempt.of(request, user.get_username())
    attempt.succeed()
    if not attempt.is_of_known_browser:
        known = {"name": attempt.name, "id": get_random_string(16)}
        request.browser_to_know = signing.dumps(known, salt=SALT)  # type: ignore[attr-defined]
    _record(user, "login")
    log.info("login.succeeded", user=user.get_username())


@receiver(user_logged_out)
def note_logout(sender: Any, request: HttpRequest, user: AbstractBaseUser | None, **_: Any) -> None:
    if user is not None:
        _record(user, "logout")


@receiver(user_login_failed)
def note_failure(sender: Any, credentials: dict[str, Any], request: HttpRequest | None = None, **_: Any) -> None:
    """Log each failure. Only the first of a name and origin, and the one that reaches the limit, are audit entries, so that
    strangers cannot fill the audit log."""
    if request is None:
        return
    given = name_in(credentials)
    failures = Attempt.of(request, given).fail()
    user = user_named(given)
    name = given if user else "(no such user)"
    log.warning("login.failed", user=name, failures=failures)
    if failures in (1, LIMIT):
        record_about("anonymous", "login failed", "user", str(user.pk) if user else "", name=name, failures=failures)


def _record(user: AbstractBaseUser, action: str) -> None:
    name = str(user.get_username())
    record(f"admin:{name}", action, user, name=name)


def _known_browser(request: HttpRequest, name: str) -> str:
    """The id of the browser if this user has logged in with it before, else ""."""
    try:
        known = signing.loads(request.COOKIES.get(COOKIE, ""), salt=SALT, max_age=COOKIE_AGE)
    except signing.BadSignature:
        return ""
    return str(known["id"]) if known["name"] == name else ""
