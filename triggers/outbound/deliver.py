"""Send what is due to subscriptions, and record what became of it, as `runs.network.sending` promises. And:

1. A claim whose lease ends without an outcome is sent again: an event is never lost, and has the same `webhook-id` each time.
2. Each subscription has a queue, a limit and a breaker of its own. The oldest delivery of each is claimed in turn.
3. What fails is repeated by `schedule`. 410 disables the subscription, and so do days without a success.
4. A disabled subscription is sent nothing: what waits for it fails, and may be redelivered.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import structlog
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models.functions import Coalesce, Now
from psycopg.types.json import Jsonb

from agents.guards.addresses import networks_of
from agents.kernel.durations import in_words
from agents.kernel.redaction import redacted
from runs.db import host_clock
from runs.db.encryption import decrypt
from runs.db.errors import is_own, name_of
from runs.db.sql import database_now, execute, fetch, fetch_as
from runs.failpoints import failpoint
from runs.network import sending
from runs.network.breakers import Breakers
from runs.network.posting import CutOff, NotHandedOver, post
from runs.network.sending import LEASE, NO_WORD, Sending, rest
from runs.network.signing import signature
from triggers.models import EventDelivery, Subscription
from triggers.models.subscription import webhook_id
from triggers.outbound.body import CONTENT_TYPE, Unsendable, body_of
from triggers.outbound.edit import DISABLED, disable, end_waiting
from triggers.outbound.schedule import ATTEMPTS, PATIENCE, pause_after
from triggers.outbound.secrets import signing_keys

log = structlog.get_logger(__name__)

THREADS = 16
MOST_AT_ONCE = 8  # of one subscription
CONNECT, WHOLE = 8.0, 15.0  # seconds
KEPT = 500  # bytes of an answer
TRIES = 20  # that a delivery shows
FEW = 1_000  # rows of one statement
REFUSED_AGAIN = timedelta(seconds=30)  # after the database refused what must be read of it
DISABLE_AFTER = timedelta(days=5)  # of failures, without a success between
GONE = 410
LATER = frozenset({408, 425, 429})
LONGEST_QUIET = timedelta(minutes=10)  # of a subscription: its endpoint may be corrected or changed meanwhile
READ_BACK = ("event", "status", "reason", "attempts", "entered_at", "tries", "event__payload_removed_at")
# The oldest due delivery of each subscription that gets messages now, by probes of an index: a long queue costs no more than a
# short one.
QUEUES = """
SELECT subscription.id, subscription.enabled FROM triggers_subscription subscription CROSS JOIN LATERAL (
  SELECT due_at FROM triggers_eventdelivery
  WHERE subscription_id = subscription.id AND status = 'pending'
    AND (due_at <= (SELECT clock_timestamp()) OR NOT subscription.enabled)
  ORDER BY due_at LIMIT 1) first
WHERE NOT subscription.enabled OR subscription.id <> ALL(%s::uuid[])
ORDER BY first.due_at
"""
# MATERIALIZED: see runs.notifications.deliver.
CLAIM = """
WITH due AS MATERIALIZED (
  SELECT id FROM triggers_eventdelivery
  WHERE subscription_id = %(subscription)s::uuid AND status = 'pending' AND due_at <= (SELECT clock_timestamp())
  ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED
)
UPDATE triggers_eventdelivery delivery SET status = 'sending', claim = %(claim)s::uuid, attempts = attempts + 1,
  due_at = clock_timestamp() + %(lease)s::interval
FROM due WHERE delivery.id = due.id
RETURNING delivery.id, delivery.event_id, delivery.subscription_id, delivery.claim, delivery.attempts
"""
EXPIRE = """
UPDATE triggers_eventdelivery SET
  status = CASE WHEN attempts < %(attempts)s::int THEN 'pending' ELSE 'failed' END,
  due_at = CASE WHEN attempts < %(attempts)s::int THEN clock_timestamp() END,
  ended_at = CASE WHEN attempts < %(attempts)s::int THEN NULL ELSE clock_timestamp() END,
  reason = %(error)s::text,
  tries = tries || jsonb_build_array(jsonb_build_object('at', clock_timestamp(), 'error', %(error)s::text))
WHERE id = ANY(ARRAY(
  SELECT id FROM triggers_eventdelivery WHERE status = 'sending' AND due_at <= (SELECT clock_timestamp())
  LIMIT %(few)s::int FOR UPDATE SKIP LOCKED))
"""
# In one statement, because most attempts succeed.
DELIVERED = """
UPDATE triggers_eventdelivery delivery SET status = 'delivered', reason = '', due_at = NULL, ended_at = clock_timestamp(),
  tries = CASE WHEN jsonb_array_length(tries) >= %(most)s::int THEN tries - 0 ELSE tries END || jsonb_build_array(
    CASE WHEN event.payload_removed_at IS NULL THEN %(tried)s::jsonb ELSE %(tried)s::jsonb || '{"answer": ""}' END)
FROM triggers_event event
WHERE delivery.id = %(id)s::uuid AND delivery.claim = %(claim)s::uuid AND delivery.status IN ('sending', 'pending')
  AND event.id = delivery.event_id
"""
# What was claimed and not begun was not sent: that is no attempt. Others come first, for it may fail again.
PUT_BACK = """
UPDATE triggers_eventdelivery SET status = 'pending', attempts = attempts - 1, due_at = clock_timestamp() + %(again)s::interval
WHERE claim = ANY(%(claims)s::uuid[]) AND id = ANY(%(ids)s::uuid[]) AND status = 'sending'
"""
NEXT_DUE = """
SELECT extract(epoch FROM min(due_at) - clock_timestamp())::float8 FROM triggers_eventdelivery WHERE status IN ('pending', 'sending')
"""


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A claimed delivery."""

    id: UUID
    event_id: UUID
    subscription_id: UUID
    claim: UUID
    attempts: int


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a subscription sends to. `problem`: why nothing can be sent; `final`: repeating makes no sense."""

    url: str = field(default="", repr=False)
    keys: Sequence[bytes] = field(default=(), repr=False)
    is_failing: bool = False
    problem: str = ""
    final: bool = False


@dataclass(frozen=True, kw_only=True)
class Job:
    """A claimed delivery, as a thread sends it."""

    delivery: Claimed
    endpoint: Endpoint
    body: bytes = field(repr=False)
    depth: int


@dataclass(frozen=True, kw_only=True)
class Tried:
    """What became of an attempt. `error`: why it failed; empty: it was delivered. `final`: repeating makes no sense."""

    at: datetime
    status: int | None = None
    seconds: float = 0.0
    answer: str = ""
    error: str = ""
    after: timedelta | None = None
    final: bool = False

    @property
    def is_away(self) -> bool:
        """Did the endpoint not answer, or ask for patience?"""
        return (
            bool(self.error) and not self.final and (self.status is None or self.status in LATER or self.status >= 500)
        )

    def as_json(self) -> dict[str, Any]:
        said = {"at": self.at.isoformat(), "status": self.status, "seconds": round(self.seconds, 3)}
        return {**said, "answer": self.answer, "error": self.error}


class Outbound:
    """Claims, has sent and records; call `deliver_some` from one thread. `wake` is called from any thread when a result is there."""

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self.breakers = Breakers(most=MOST_AT_ONCE)
        self.sending: Sending[Job, Tried] = Sending(
            "outbound", threads=THREADS, breakers=self.breakers, judge=self._tell_breaker, wake=wake
        )
        self.unbegun: dict[UUID, UUID] = {}  # deliveries that are claimed and were not handed to a thread, by claim

    def deliver_some(self) -> float:
        """Do a bounded amount of work; returns the seconds until the next look, infinite if nothing is ahead."""
        if self.unbegun:
            claims, ids = list(self.unbegun), list(self.unbegun.values())
            execute(PUT_BACK, {"claims": claims, "ids": ids, "again": REFUSED_AGAIN})
            self.unbegun.clear()
        recorded = self.sending.record_each(_record_result)
        expire()
        if recorded + self._begin():
            return 0.0
        [(due_in,)] = fetch(NEXT_DUE)
        return rest(due_in)

    def _begin(self) -> int:
        """In rounds, one delivery of each subscription in a round."""
        count, begun = 0, 1
        endpoints: dict[UUID, Endpoint] = {}
        while self.sending.has_room and begun:
            begun = 0
            for subscription_id, enabled in fetch(QUEUES, [[UUID(host) for host in self.sending.refusing]]):
                if not enabled:
                    begun += end_waiting(subscription_id, DISABLED)
                elif self.sending.has_room and str(subscription_id) not in self.sending.refusing:
                    begun += self._begin_one(subscription_id, endpoints)
            count += begun
        return count

    def _begin_one(self, subscription_id: UUID, endpoints: dict[UUID, Endpoint]) -> int:
        if subscription_id not in endpoints:
            endpoints[subscription_id] = endpoint_of(subscription_id)
        endpoint = endpoints[subscription_id]
        claimed = claim(subscription_id)
        if claimed is None:
            return 0
        self.unbegun[claimed.claim] = claimed.id
        failpoint("after_outbound_claim")
        if job := job_of(claimed, endpoint):
            self.sending.start(job, str(subscription_id), send)
        del self.unbegun[claimed.claim]
        return 1

    def _tell_breaker(self, result: sending.Result[Job, Tried]) -> None:
        if result.outcome.is_away:
            after = min(result.outcome.after or timedelta(), LONGEST_QUIET)
            self.breakers.failed(result.host, after.total_seconds())
        else:
            self.breakers.succeeded(result.host)


def claim(subscription_id: UUID) -> Claimed | None:
    """Claim the next delivery to it. A crash of the database may undo that: the event is then sent again, as after any crash."""
    asked = {"subscription": subscription_id, "claim": uuid4(), "lease": LEASE}
    return next(iter(fetch_as(Claimed, CLAIM, asked)), None)


def endpoint_of(subscription_id: UUID) -> Endpoint:
    subscription = Subscription.objects.filter(pk=subscription_id, enabled=True).first()
    if subscription is None:
        return Endpoint(problem=DISABLED, final=True)
    try:
        url, keys = decrypt(subscription.ciphertext).decode(), signing_keys(subscription)
    except (InvalidToken, ImproperlyConfigured):
        return Endpoint(problem="no key in WAKEFUL_ENCRYPTION_KEYS decrypts its URL and secrets")
    except ValueError as error:
        log.exception("outbound.unreadable", subscription=str(subscription_id))
        return Endpoint(problem=f"its URL or a secret cannot be read: {type(error).__name__}")
    return Endpoint(url=url, keys=keys, is_failing=subscription.failing_since is not None)


def job_of(delivery: Claimed, endpoint: Endpoint) -> Job | None:
    """What a thread needs to know. One that cannot be sent is recorded, and None."""
    if endpoint.problem:
        record(delivery, Tried(at=database_now(), error=endpoint.problem, final=endpoint.final))
        return None
    try:
        body, depth = body_of(delivery.event_id)
    except Unsendable as refusal:
        record(delivery, Tried(at=database_now(), error=str(refusal), final=True))
        return None
    except Exception as error:
        if not is_own(error):
            raise
        log.exception("outbound.not_begun", delivery=str(delivery.id))
        record(delivery, Tried(at=database_now(), error=f"it cannot be sent: {name_of(error)}"))
        return None
    return Job(delivery=delivery, endpoint=endpoint, body=body, depth=depth)


# Sending, in a thread


def send(job: Job) -> Tried:
    at, began = host_clock.now(), time.monotonic()
    try:
        tried = _tried(job, at)
    except Exception as error:
        # The boundary of the thread: the lease would repeat it only after minutes.
        log.exception("outbound.failed", delivery=str(job.delivery.id))
        tried = Tried(at=at, error=type(error).__name__)
    seconds = time.monotonic() - began
    log.info(
        "outbound.tried",
        delivery=str(job.delivery.id),
        status=tried.status,
        error=tried.error,
        seconds=round(seconds, 3),
    )
    failpoint("after_outbound_send")
    return replace(tried, seconds=seconds)


def _tried(job: Job, at: datetime) -> Tried:
    networks = networks_of(settings.WAKEFUL_OUTBOUND_NETWORKS)
    try:
        answer = post(
            job.endpoint.url,
            job.body,
            headers_of(job, int(at.timestamp())),
            connect=CONNECT,
            whole=WHOLE,
            keep=KEPT,
            networks=networks,
        )
    except (NotHandedOver, CutOff) as error:
        return Tried(at=at, error=str(error))
    text = redacted(answer.begins.decode(errors="replace").replace("\0", "\ufffd"))
    if 200 <= answer.status < 300:
        return Tried(at=at, status=answer.status, answer=text)
    why = f"it answered {answer.status}"
    if 300 <= answer.status < 400:
        why += ", a redirect, which is not followed: set the URL that it leads to"
    return Tried(at=at, status=answer.status, answer=text, error=why, after=answer.after, final=answer.status == GONE)


def headers_of(job: Job, at: int) -> dict[str, str]:
    id = webhook_id(job.delivery.id)
    return {
        "Content-Type": CONTENT_TYPE,
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(signature(key, id, at, job.body) for key in job.endpoint.keys),
        "wakeful-depth": str(job.depth),
    }


# Outcomes


def _record_result(result: sending.Result[Job, Tried]) -> bool:
    return record(result.job.delivery, result.outcome, is_failing=result.job.endpoint.is_failing)


def record(delivery: Claimed, tried: Tried, *, is_failing: bool = True) -> bool:
    """Record an attempt; False if it is this claim's no longer. `is_failing`: earlier attempts of its endpoint may have failed."""
    if not tried.error:
        said = Jsonb(tried.as_json())
        asked = {"id": delivery.id, "claim": delivery.claim, "tried": said, "most": TRIES}
        recorded = bool(execute(DELIVERED, asked))
        if recorded and is_failing:
            _note(delivery.subscription_id, tried)
        return recorded
    with transaction.atomic():
        mine = EventDelivery.objects.filter(pk=delivery.id, claim=delivery.claim, status__in=["sending", "pending"])
        row = mine.select_for_update(of=("self",)).select_related("event").only(*READ_BACK).first()
        if row is None:
            log.warning("outbound.late", delivery=str(delivery.id), status=tried.status)
            return False
        if row.event.payload_removed_at:
            tried = replace(tried, answer="")  # it may quote the event
        row.tries = [*row.tries, tried.as_json()][-TRIES:]
        _settle(row, tried)
        row.save(update_fields=["status", "reason", "due_at", "ended_at", "tries"])
        _note(delivery.subscription_id, tried)
    return True


def _settle(row: EventDelivery, tried: Tried) -> None:
    """After an attempt that failed."""
    now = database_now()
    pause = pause_after(row.attempts, tried.after)
    row.due_at, row.ended_at, row.reason = None, now, tried.error
    if tried.final or pause is None or now > row.entered_at + PATIENCE:
        row.status = EventDelivery.Status.FAILED
        row.reason = tried.error if tried.final else f"{tried.error}; given up after {row.attempts} attempts"
    else:
        row.status = EventDelivery.Status.PENDING
        row.due_at, row.ended_at = now + pause, None


def _note(subscription_id: UUID, tried: Tried) -> None:
    """Record on the subscription how its endpoint answered an attempt."""
    endpoint = Subscription.objects.filter(pk=subscription_id)
    if not tried.error:
        endpoint.exclude(failing_since=None).update(failing_since=None, error="")
    elif tried.status == GONE:
        disable(subscription_id, reason=f"its endpoint answered {GONE} Gone: it wants no more events")
    elif not tried.final:
        endpoint.update(failing_since=Coalesce("failing_since", Now()), error=tried.error)
        if endpoint.filter(failing_since__lt=Now() - DISABLE_AFTER).exists():
            disable(
                subscription_id,
                reason=f"every attempt has failed for {in_words(DISABLE_AFTER)}, the last: {tried.error}",
            )


def expire() -> int:
    """Repeat what was claimed by a process that did not say what became of it."""
    return execute(EXPIRE, {"attempts": ATTEMPTS, "error": NO_WORD, "few": FEW})
