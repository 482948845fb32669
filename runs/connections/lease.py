"""Give the access token of a connection, and renew it in time, by one process at a time.

Of all processes that need a new token, the one whose compare-and-set succeeds asks the provider (`claim`); the others use the old token
while it lasts, and wait otherwise. The claim ends by itself, so that a process that dies holds up no one for longer than that. No
transaction is open meanwhile.

A provider may accept each refresh token once. If its answer is lost (the process was killed, the time was over), the new token is lost
with it: the next try sends the old one again, which a provider that allows for this accepts; otherwise it answers `invalid_grant`. Then
the connection is *refused*, and only a person can help. It is never tried again. Any other failure is tried again after a pause
that grows, by whichever process needs the token then: one request for all of them.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import uuid4

import structlog
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connection
from django.db.models import DateTimeField, Func

from agents.exceptions import AgentError, NotConnected, ProviderAway, Retry
from agents.guards.addresses import networks_of
from agents.guards.atomic import not_in_atomic_body
from agents.kernel.backoff import backoff
from agents.kernel.connecting import Lease
from runs.connections import protocol
from runs.connections.protocol import NoAnswer, ProviderError, RefusedByProvider, Tokens
from runs.connections.revocation import owe_late
from runs.connections.sealed import opened
from runs.connections.tokens import NO_TOKENS, client_of, columns_of, provider_of
from runs.db.session import writing
from runs.db.sql import fetch
from runs.failpoints import failpoint
from runs.models import Connection
from runs.users import of_users_who_may_enter

log = structlog.get_logger(__name__)

CLAIM = timedelta(seconds=40)  # twice as long as a request takes, so that its outcome can be recorded
WAIT = 45.0  # seconds, for another process to renew the token
LOOKS = (0.05, 0.5)  # seconds between two looks, the first and the longest
SOON = timedelta(minutes=5)  # so long before its end, or a fifth of its life, a token is renewed
LEAST = timedelta(seconds=10)  # a token that ends within this time, or a tenth of its life, is given to no one
APART = timedelta(seconds=10)  # between two renewals, also if a host refuses the new token
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=5)
MISCONFIGURED = timedelta(minutes=1)  # the first pause after an answer that only an operator can change
OF_NO_USER = (
    "names {owner}, and no user that it was made for: one who is deleted, or one for whom a process of the version before added it in an "
    "upgrade. Delete it, and add it again"
)
RECORDING = 5  # tries to record an answer while the database is away

T = TypeVar("T")
CLOCK = Func(function="clock_timestamp", output_field=DateTimeField())
_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

TAKE = """
UPDATE runs_connection SET claim = %(claim)s::uuid, claimed_until = clock_timestamp() + %(lasts)s::interval,
  unanswered = unanswered + 1
WHERE id = %(id)s AND revision = %(revision)s AND state = 'connected'
  AND (claimed_until IS NULL OR claimed_until < clock_timestamp()) AND (retry_at IS NULL OR retry_at <= clock_timestamp())
RETURNING clock_timestamp(), unanswered
"""


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A connection as it is now, by the database's clock."""

    row: Connection
    now: datetime

    @property
    def left(self) -> timedelta:
        """How long its access token lasts."""
        return self.row.expires_at - self.now if self.row.expires_at else timedelta.max

    @property
    def life(self) -> timedelta:
        if not self.row.expires_at or not self.row.refreshed_at:
            return timedelta.max
        return max(self.row.expires_at - self.row.refreshed_at, timedelta())

    @property
    def is_fresh(self) -> bool:
        return self.left > min(SOON, self.life / 5)

    @property
    def is_usable(self) -> bool:
        return self.left > min(LEAST, self.life / 10)

    @property
    def is_renewable(self) -> bool:
        return self.row.grant == Connection.Grant.CLIENT or self.row.refresh_token is not None

    @property
    def is_new(self) -> bool:
        return self.row.refreshed_at is not None and self.now - self.row.refreshed_at < APART

    @property
    def pause(self) -> timedelta:
        """Until the provider may be asked again."""
        return max((self.row.retry_at - self.now) if self.row.retry_at else timedelta(), timedelta())

    @property
    def is_claimed(self) -> bool:
        return self.row.claimed_until is not None and self.row.claimed_until > self.now


@not_in_atomic_body
def lease(name: str, /, *, refused: str = "", may_retry: bool = True) -> Lease:
    """The access token of a connection, as `agents.kernel.connecting.Leasing` describes."""
    standing = read(name)
    if given := _as_it_is(standing, refused):
        if refused and given.token == refused and not standing.is_new:
            to_its_end(partial(_doubt, standing))
        return given
    until = time.monotonic() + WAIT
    # One thread of a process looks for all of them.
    lock = _locks[name]
    if not lock.acquire(timeout=WAIT):
        raise _away(name, may_retry, standing)
    try:
        return _renewed(name, refused, may_retry, until)
    finally:
        lock.release()


def read(name: str) -> Standing:
    """Raises NotConnected."""
    row = Connection.objects.filter(name=name).annotate(clock=CLOCK).first()
    if row is None:
        raise NotConnected(f"there is no connection {name!r}: create it in the admin, under Connections")
    if row.state != Connection.State.CONNECTED:
        why = f": {row.reason.rstrip('.')}" if row.reason else ""
        raise NotConnected(f"connection {name!r} is {row.state}{why}. Connect it again in the admin, under Connections")
    if row.owner and row.owner_user_id is None:
        raise NotConnected(f"connection {name!r} {OF_NO_USER.format(owner=row.owner)}")
    if row.owner and not _may_enter(row):
        raise NotConnected(
            f"connection {name!r} belongs to {row.owner!r}, who may not log in (any more): connect another account"
        )
    return Standing(row=row, now=row.clock)


def _as_it_is(standing: Standing, refused: str) -> Lease | None:
    """Its token, if it is still good."""
    if not standing.is_usable or (standing.is_renewable and not standing.is_fresh):
        return None
    given = _lease(standing.row)
    # Of a token that was just given, or that cannot be renewed, the caller judges the refusal.
    may_be_refused = standing.is_new or not standing.is_renewable
    return given if given.token != refused or may_be_refused else None


def _renewed(name: str, refused: str, may_retry: bool, until: float) -> Lease:
    pause, longest = LOOKS
    while True:
        standing = read(name)
        if given := _as_it_is(standing, refused):
            return given
        if not standing.is_renewable:
            to_its_end(partial(_expire, standing))
            continue
        if not standing.is_claimed and not standing.pause:
            to_its_end(partial(_renew, standing))
            continue
        if standing.is_usable and (old := _lease(standing.row)).token != refused:
            return old
        if not standing.is_claimed or time.monotonic() > until:
            raise _away(name, may_retry, standing)
        time.sleep(pause)
        pause = min(pause * 1.5, longest)


def _renew(standing: Standing) -> None:
    """Ask the provider, if no other process does, and record its answer."""
    row = standing.row
    ask = _request_of(row)  # before the claim: a key that is gone holds up no one
    claim = uuid4()
    with writing():
        taken = fetch(TAKE, {"claim": claim, "lasts": CLAIM, "id": row.pk, "revision": row.revision})
    if not taken:
        return
    [(at, unanswered)] = taken
    failpoint("after_connection_claim")
    try:
        tokens = ask()
    except ProviderError as error:
        failpoint("after_connection_answer")
        _record(row, claim, failure_of(row, error, at=at, unanswered=unanswered))
        log.warning("connection.not_renewed", connection=row.name, reason=str(error))
    except BaseException as error:
        # Not the provider's: such as the network refused to a shadow run. The next one may ask at once.
        sent_nothing = isinstance(error, AgentError)
        _record(row, claim, {"claim": None, "claimed_until": None, "unanswered": unanswered - sent_nothing})
        raise
    else:
        failpoint("after_connection_answer")
        _record(row, claim, {**columns_of(tokens, at=at), "revision": row.revision + 1}, tokens)
        log.info("connection.renewed", connection=row.name)


def to_its_end(act: Callable[[], T]) -> T:
    """Call it in a thread, with a database session of its own: neither the deadline of a step nor the end of its transaction may come
    between an answer of a provider and its record."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(act())
        except BaseException as error:
            failed.append(error)
        finally:
            connection.close()

    context = copy_context()  # of the log, and of the audit log
    thread = threading.Thread(target=context.run, args=[run], name="wakeful-connection", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def _request_of(row: Connection) -> Callable[[], Tokens]:
    """Raises NotConnected."""
    with _readable(row):
        provider, client, token = provider_of(row), client_of(row), opened(row.refresh_token)
    if row.grant == Connection.Grant.CLIENT:
        return lambda: protocol.of_application(provider, client, row.scopes)
    return lambda: protocol.renew(provider, client, token)


@contextmanager
def _readable(row: Connection) -> Iterator[None]:
    """Raises NotConnected where this process cannot make use of the row."""
    try:
        yield
    except KeyError:
        raise NotConnected(f"connection {row.name!r}: this version knows no provider {row.provider!r}") from None
    except (InvalidToken, ImproperlyConfigured):
        raise NotConnected(
            f"connection {row.name!r}: no key of WAKEFUL_ENCRYPTION_KEYS decrypts its secrets. Add the key again, or connect it again"
        ) from None


def failure_of(row: Connection, error: ProviderError, *, at: datetime, unanswered: int) -> dict[str, Any]:
    """The columns of a connection that got no token."""
    if isinstance(error, RefusedByProvider) and error.has_ended:
        return {
            **NO_TOKENS,
            "state": Connection.State.REFUSED,
            "reason": error.words or _why_refused(error, unanswered),
            "revision": row.revision + 1,
        }
    if isinstance(error, RefusedByProvider):
        first = MISCONFIGURED
        reason = error.words or f"{error}: check its client id, its secret and its scopes at the provider"
    else:
        first, reason = FIRST_PAUSE, str(error)
    may_have_acted = isinstance(error, NoAnswer) and error.may_have_acted
    pause = backoff(first, LONGEST_PAUSE, row.failures + 1)
    if isinstance(error, NoAnswer) and error.after:
        pause = max(pause, min(error.after, LONGEST_PAUSE * 12))
    return {
        "claim": None,
        "claimed_until": None,
        "unanswered": unanswered if may_have_acted else unanswered - 1,
        "failures": row.failures + 1,
        "failing_since": row.failing_since or at,
        "retry_at": at + pause,
        "reason": reason,
    }


def _why_refused(error: RefusedByProvider, unanswered: int) -> str:
    if unanswered > 1:
        return (
            f"{error} to its refresh token. The answer to an earlier request was lost, and with it a new refresh token, because this "
            "provider accepts each one once"
        )
    return f"{error} to its refresh token: the access was withdrawn there, or has ended"


def _record(row: Connection, claim: Any, columns: dict[str, Any], tokens: Tokens | None = None) -> None:
    """Record an outcome, if the claim still holds; if the connection was revoked meanwhile, its new tokens are revoked as well. A refresh
    token that is not recorded is lost, so a database that is away for a moment is waited for."""
    for attempt in range(RECORDING):
        try:
            with writing():
                recorded = Connection.objects.filter(pk=row.pk, claim=claim).update(**columns)
                if tokens and not recorded:
                    owe_late(row, tokens)
            return
        except OperationalError:
            if attempt + 1 == RECORDING:
                raise
            connection.close()
            time.sleep(0.5 * 2**attempt)


def _doubt(standing: Standing) -> None:
    """A host has refused a token that cannot be renewed: it may have been withdrawn at the provider, and the caller may be wrong."""
    reason = "a host of the provider has answered 401 to its token, which cannot be renewed"
    doubted = Connection.objects.filter(pk=standing.row.pk, revision=standing.row.revision, failing_since=None)
    with writing():
        doubted.update(failing_since=CLOCK, reason=reason)


def _expire(standing: Standing) -> None:
    """A token that has expired, and that nothing renews."""
    reason = "its access token has expired, and the provider has given no refresh token"
    ended = {**NO_TOKENS, "state": Connection.State.EXPIRED, "reason": reason, "revision": standing.row.revision + 1}
    with writing():
        Connection.objects.filter(pk=standing.row.pk, revision=standing.row.revision).update(**ended)


def _lease(row: Connection) -> Lease:
    with _readable(row):
        token, provider = opened(row.access_token), provider_of(row)
    networks = networks_of(settings.WAKEFUL_HTTP_NETWORKS)
    return Lease(token=token, hosts=provider.hosts, networks=networks, owner=row.owner)


def _away(name: str, may_retry: bool, standing: Standing) -> Exception:
    why = f": {standing.row.reason}" if standing.row.reason else ""
    text = f"connection {name!r} has no token at the moment{why}"
    return Retry(text, after=max(standing.pause, FIRST_PAUSE)) if may_retry else ProviderAway(text)


def _may_enter(row: Connection) -> bool:
    """Whether its owner may log in, and is still the user that it was made for."""
    user = of_users_who_may_enter("%(owner)s", key="%(key)s")
    [(may,)] = fetch(f"SELECT EXISTS (SELECT {user})", {"owner": row.owner, "key": row.owner_user_id})  # noqa: S608  (our own parts)
    return bool(may)
