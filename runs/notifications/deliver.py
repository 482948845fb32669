"""Send what is due to recipients, and record what became of it, as `runs.network.sending` promises. And:

1. The claim is on disk before a byte leaves: no crash sends a message twice.
2. A claim whose lease ends without an outcome becomes *unknown*, or is sent again where the receiver can tell a repeat.
3. Before the message was handed over, failures are tried again with back-off, until the second route or the end of patience.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import structlog
from cryptography.fernet import InvalidToken
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Coalesce, Least, Now

from agents.kernel.backoff import backoff
from runs.db.errors import is_gone, is_own, name_of
from runs.db.sql import database_now, fetch
from runs.failpoints import failpoint
from runs.models import Delivery, Recipient
from runs.network import sending
from runs.network.breakers import Breakers
from runs.network.sending import LEASE, NO_WORD, Sending, rest
from runs.notifications import requests
from runs.notifications.channels.channel import Channel, NotNow, Outcome, Refused, Sent, Unknown, channel_of, channels
from runs.notifications.digest_contents import unsettled
from runs.notifications.lock import lock_planning
from runs.notifications.message import Message, Request
from runs.notifications.message_of_delivery import item_of, message_of
from runs.notifications.other_routes import take_default_route, take_second_route
from runs.notifications.places.place import Place, places, send_reply
from runs.notifications.plan import plan
from runs.notifications.recipients import address_of, sync_settings
from runs.notifications.replies import report_failed_reply
from runs.notifications.waiting_deliveries import call_off, leave_out, put_off

log = structlog.get_logger(__name__)

THREADS = 6
RETRY = timedelta(seconds=5)
RETRY_MAX = timedelta(minutes=15)
REFUSED_AGAIN = timedelta(seconds=30)  # after the database refused what must be read of it
EXPIRED = 100  # of one look
MOST_ITEMS = 1_000  # notifications that go out as one message
ENDED = {"due_at": None, "give_up_at": None}
# What must be on disk before a message leaves: the dispatcher's commits otherwise are not.
ON_DISK = "SELECT set_config('synchronous_commit', 'on', true)"
# MATERIALIZED, here as in an ARRAY elsewhere: the planner may execute a plain sub-SELECT once for each row of the table, each time
# with a LIMIT of its own.
# Replies of a thread go out in their order: one that is sent again holds up those behind it, for a day at most.
IN_ITS_TURN = """(delivery.thread = '' OR NOT EXISTS (
  SELECT FROM runs_delivery earlier WHERE earlier.thread = delivery.thread AND earlier.thread <> ''
    AND earlier.notification_id < delivery.notification_id AND earlier.status IN ('pending', 'sending')))"""
CLAIM = """
WITH due AS MATERIALIZED (
  SELECT delivery.id, coalesce(recipient.channel, delivery.channel) AS channel
  FROM runs_delivery delivery LEFT JOIN runs_recipient recipient ON recipient.id = delivery.recipient_id
  WHERE delivery.status IN ('pending', 'held') AND delivery.due_at <= (SELECT clock_timestamp())
    AND coalesce(recipient.host, delivery.place->>'host') <> ALL(%(full)s::text[])
    AND coalesce(recipient.channel, delivery.channel) = ANY(%(known)s::text[]) AND {in_its_turn}
  ORDER BY delivery.is_urgent DESC, delivery.due_at LIMIT 1 FOR UPDATE OF delivery SKIP LOCKED
)
UPDATE runs_delivery SET status = 'sending', claim = %(claim)s::uuid, attempts = attempts + 1, channel = due.channel,
  due_at = clock_timestamp() + %(lease)s::interval
FROM due WHERE runs_delivery.id = due.id
RETURNING runs_delivery.id
""".replace("{in_its_turn}", IN_ITS_TURN)
EXPIRE = """
UPDATE runs_delivery SET
  status = CASE WHEN channel = ANY(%(repeatable)s::text[]) THEN 'pending' ELSE 'unknown' END,
  due_at = CASE WHEN channel = ANY(%(repeatable)s::text[]) THEN clock_timestamp() END,
  ended_at = CASE WHEN channel = ANY(%(repeatable)s::text[]) THEN NULL ELSE clock_timestamp() END,
  error = %(error)s::text
WHERE id = ANY(ARRAY(
  SELECT id FROM runs_delivery WHERE status = 'sending' AND due_at <= (SELECT clock_timestamp())
  LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED))
RETURNING id, status
"""
NEXT_DUE = """
SELECT extract(epoch FROM least(
  (SELECT min(due_at) FROM runs_delivery delivery WHERE status IN ('pending', 'held', 'sending') AND {in_its_turn}),
  (SELECT min(created_at) FROM runs_notification WHERE planned_at IS NULL)) - clock_timestamp())::float8
""".replace("{in_its_turn}", IN_ITS_TURN)


@dataclass(frozen=True, kw_only=True)
class Job:
    """A claimed delivery, as a thread sends it."""

    id: UUID
    claim: UUID
    channel: str
    host: str
    address: str
    message: Message
    place: Mapping[str, Any] | None = None  # of a reply


Result = sending.Result[Job, Outcome]


class Deliverer:
    """Plans, claims and records; call `deliver_some` from one thread. `wake` is called from any thread when a result is there."""

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        self.breakers = Breakers()
        self.sending: Sending[Job, Outcome] = Sending(
            "delivery", threads=THREADS, breakers=self.breakers, judge=self._tell_breaker, wake=wake
        )
        self.has_synced = False
        self.unbegun: dict[UUID, UUID] = {}  # deliveries that are claimed and were not handed to a thread, by claim

    def deliver_some(self) -> float:
        """Do a bounded amount of work; returns the seconds until the next look, infinite if nothing is ahead."""
        if not self.has_synced:
            sync_settings()  # so that the console shows the recipient before the first notification
            self.has_synced = True
        put_back(self.unbegun)
        recorded = self.sending.record_each(record)
        expire()
        give_up(self.breakers.away)
        try:
            planned = plan()
        finally:
            begun = self._begin()  # what cannot be planned does not stop what is planned
        if recorded or planned or begun:
            return 0.0
        [(due_in,)] = fetch(NEXT_DUE)
        return rest(due_in)

    def _tell_breaker(self, result: Result) -> None:
        host = result.host
        match result.outcome:
            case NotNow(is_away=True, after=after):
                self.breakers.failed(host, after.total_seconds() if after else 0.0)
            case Unknown():
                self.breakers.failed(host)
            case _:
                self.breakers.succeeded(host)

    def _begin(self) -> int:
        count = 0
        while self.sending.has_room:
            # Hosts that have no message under way go first: slow ones must not keep all threads from the others.
            busy, refusing = self.breakers.busy, self.sending.refusing
            job = (claim_next([*refusing, *busy], self.unbegun) if busy else None) or claim_next(refusing, self.unbegun)
            if job is None:
                break
            failpoint("before_delivery")
            self.sending.start(job, job.host, _send)
            del self.unbegun[job.claim]
            count += 1
        return count


def _send(job: Job) -> Outcome:
    began = time.monotonic()
    try:
        if job.place is None:
            outcome = channels()[job.channel].send(job.address, job.message)
        else:
            outcome = send_reply(job.channel, job.place, job.message)
    except Exception as error:
        # The boundary of the thread: a bug of a channel, which may have handed the message over.
        log.exception("delivery.channel_failed", channel=job.channel)
        outcome = Unknown(why=type(error).__name__)
    log.info(
        "delivery.tried",
        delivery=str(job.id),
        channel=job.channel,
        outcome=type(outcome).__name__,
        seconds=round(time.monotonic() - began, 3),
    )
    failpoint("after_delivery")
    return outcome


def claim_next(full: Sequence[str], unbegun: dict[UUID, UUID] | None = None) -> Job | None:
    """Claim the next delivery to a host that is not full; None if there is none. One that cannot be sent is passed over. One that is
    claimed stands in `unbegun`, also where the database fails then."""
    unbegun = {} if unbegun is None else unbegun
    while True:
        claim = uuid4()
        with transaction.atomic():
            fetch(ON_DISK)
            # A newer version may have more channels.
            asked = {"claim": claim, "lease": LEASE, "full": list(full), "known": [*channels(), *places()]}
            found = fetch(CLAIM, asked)
        if not found:
            return None
        id = unbegun[claim] = found[0][0]
        failpoint("after_delivery_claim")
        try:
            job = _job_of(Delivery.objects.select_related("recipient").get(pk=id), claim)
        except Exception as error:
            if not is_own(error):
                raise
            log.exception("delivery.not_begun", delivery=str(id))
            job = None
            _try_again(id, claim, f"it cannot be sent: {name_of(error)}", None)
        if job:
            return job
        del unbegun[claim]


def put_back(unbegun: dict[UUID, UUID]) -> None:
    """What was claimed and not begun was not sent: that is no attempt. Others come first, for it may fail again."""
    for claim, id in list(unbegun.items()):
        mine = Delivery.objects.filter(pk=id, claim=claim, status__in=["sending", "unknown"])
        again = {"status": "pending", "due_at": Now() + REFUSED_AGAIN, "ended_at": None, "reason": ""}
        mine.update(attempts=F("attempts") - 1, **again)
        del unbegun[claim]


def _job_of(delivery: Delivery, claim: UUID) -> Job | None:
    recipient = delivery.recipient
    if delivery.place is not None:
        return _job_of_place(delivery, claim, delivery.place)
    if recipient is None:  # removed meanwhile
        _end(delivery.pk, claim, status="suppressed", reason="the recipient was removed")
        return None
    if not recipient.active or (_is_silenced(recipient) and not delivery.is_urgent):
        # Since an attempt that was under way, or by the settings.
        with transaction.atomic():
            lock_planning()
            Delivery.objects.filter(pk=delivery.pk, claim=claim, status="sending").update(status="pending")
            if recipient.active:
                put_off(recipient)
            else:
                call_off(recipient, reason="the recipient is inactive")
        return None
    carried = unsettled(delivery, most=MOST_ITEMS)
    message = message_of(delivery, carried)
    leave_out(delivery, carried.left_out)
    if not message.items:
        _end(delivery.pk, claim, status="suppressed", reason="what it asks for is decided, or its run was stopped")
        return None
    job = Job(
        id=delivery.pk, claim=claim, channel=delivery.channel, host=recipient.host, address="", message=message
    )  # fmt: skip
    try:
        address = address_of(recipient)
    except (InvalidToken, ImproperlyConfigured):
        record(Result(job=job, outcome=NotNow(why="no key in WAKEFUL_ENCRYPTION_KEYS decrypts the address")))
        return None
    channel = channel_of(address)
    if channel is None or channel.name != job.channel:
        # Changed since the claim, or the setting since its row was written.
        sync_settings()
        record(Result(job=job, outcome=NotNow(why="its address has changed meanwhile")))
        return None
    return replace(job, address=address)


def _job_of_place(delivery: Delivery, claim: UUID, place: Mapping[str, Any]) -> Job | None:
    request: Request | None = None
    if requests.APPROVAL in place:
        match requests.at_sending(delivery, claim):
            case requests.LeftOut(why=why):
                _end(delivery.pk, claim, status="suppressed", reason=why)
                return None
            case requests.Held():
                return None
            case requests.Ready() as ready:
                request, place = ready.request, ready.place
    items = [item_of(delivery.notification, is_expired=False)]
    message = Message(id=delivery.pk, to=delivery.name, items=items, request=request)
    of = {"channel": delivery.channel, "host": str(place["host"]), "address": ""}
    return Job(id=delivery.pk, claim=claim, message=message, place=place, **of)


def _is_silenced(recipient: Recipient) -> bool:
    return recipient.silenced_until is not None and recipient.silenced_until > database_now()


# Outcomes


def record(result: Result) -> bool:
    """Record what became of it; False if it is this claim's no longer."""
    job, outcome = result.job, result.outcome
    match outcome:
        case Sent(receipt=receipt):
            found = {} if receipt is None else {"receipt": receipt}
            recorded = _end(job.id, job.claim, status="sent", sent_at=Now(), error="", **found)
            if recorded:
                Recipient.objects.filter(deliveries=job.id).exclude(failing_since=None).update(failing_since=None)
        case Refused(why=why):
            recorded = fail(job.id, Q(claim=job.claim), why)
        case NotNow(why=why, after=after):
            recorded = _try_again(job.id, job.claim, why, after)
        case Unknown(why=why) if job.channel in repeatable():
            recorded = _try_again(job.id, job.claim, why, None)
        case Unknown(why=why):
            recorded = _end(job.id, job.claim, status="unknown", error=why, reason=f"it may have arrived: {why}")
    if not recorded:
        log.warning("delivery.late", delivery=str(job.id), outcome=type(outcome).__name__)
    return recorded


def _end(delivery_id: UUID, claim: UUID, *, status: str, **fields: Any) -> bool:
    # The lease may have ended before this word came: it counts all the same, unless a person or another claim was first.
    open_ = Delivery.objects.filter(pk=delivery_id, claim=claim, status__in=["sending", "unknown"])
    return bool(open_.update(status=status, ended_at=Now(), **ENDED, **fields))


def _try_again(delivery_id: UUID, claim: UUID, why: str, after: timedelta | None) -> bool:
    delivery = Delivery.objects.filter(pk=delivery_id).first()
    if delivery is None:
        return False
    mine = Delivery.objects.filter(pk=delivery_id, claim=claim, status__in=["sending", "unknown"])
    if mine.filter(give_up_at__lte=Now()).exists():
        return fail(delivery_id, Q(claim=claim), f"{why}; given up after {delivery.attempts} tries")
    due_at = Now() + max(backoff(RETRY, RETRY_MAX, delivery.attempts), after or timedelta())
    again = mine.update(
        status="pending", error=why, ended_at=None, due_at=Least(due_at, Coalesce(F("give_up_at"), due_at))
    )
    return bool(again)


def fail(delivery_id: UUID, which: Q, why: str) -> bool:
    """Mark the delivery failed and start its second route, if any. Return False if the row changed since it was selected."""
    with transaction.atomic():
        lock_planning()  # before any row, as the planner does
        open_ = Delivery.objects.select_for_update(of=["self"]).select_related("recipient")
        delivery = open_.filter(which, pk=delivery_id, status__in=["sending", "unknown", "pending", "held"]).first()
        if delivery is None:
            return False
        fields = {"status": "failed", "error": why, "reason": why, "ended_at": Now(), **ENDED}
        Delivery.objects.filter(pk=delivery_id).update(**fields)
        Recipient.objects.filter(deliveries=delivery_id, failing_since=None).update(failing_since=Now())
        if delivery.place is not None:
            if delivery.channel not in requests.UNREPORTED:
                report_failed_reply(delivery, why)
            log.warning("reply.failed", delivery=str(delivery_id), to=delivery.name, why=why)
            return True
        try:
            with transaction.atomic():
                instead = take_second_route(delivery) or ", ".join(take_default_route(delivery))
        except Exception as error:
            if is_gone(error):
                raise
            log.exception("delivery.no_other_route", delivery=str(delivery_id))
            Delivery.objects.filter(pk=delivery_id).update(reason=f"{why}; no other route: {name_of(error)}")
        else:
            if instead:
                Delivery.objects.filter(pk=delivery_id).update(reason=f"{why}; sent to {instead} instead")
    log.warning("delivery.failed", delivery=str(delivery_id), recipient=delivery.name, why=why)
    return True


def repeatable() -> list[str]:
    """The channels and places whose receivers recognize a message that comes again."""
    ways: dict[str, Channel | Place] = {**channels(), **places()}
    return [name for name, way in ways.items() if way.can_tell_repeats]


def expire() -> int:
    """Claims whose lease has ended: what they sent may have arrived."""
    expired = fetch(EXPIRE, {"repeatable": repeatable(), "error": NO_WORD, "limit": EXPIRED})
    unknown = [id for id, status in expired if status == "unknown"]
    if unknown:
        Delivery.objects.filter(pk__in=unknown).update(reason=f"it may have arrived: {NO_WORD}")
        log.warning("delivery.unknown", deliveries=len(unknown))
    return len(expired)


def give_up(away: Sequence[str]) -> int:
    """Fail what could not be sent for too long; also what waits behind a host that is away and was never tried itself."""
    late = Delivery.objects.filter(status__in=["pending", "held"], give_up_at__lte=Now(), due_at__lte=Now())
    late = late.filter(Q(attempts__gt=0) | Q(recipient__host__in=list(away)) | Q(place__host__in=list(away)))
    count = 0
    for delivery_id, error in list(late.order_by("due_at").values_list("id", "error")[:EXPIRED]):
        why = f"{error}; given up" if error else "its host is away; given up"
        count += fail(delivery_id, Q(status__in=["pending", "held"], give_up_at__lte=Now()), why)
    return count
