"""Requests for a decision, posted where the message came from that woke the run, for sources that say so.

1. A request is a delivery of the notification of its approval, beside those to recipients: the first with its place, and where messages
   can be changed a second one, the *outcome*. That is held until the approval is decided or over, and then changes the message once.
2. Every way to decide ends the hold in its own transaction (`hurry_outcome`). What ends otherwise, by a deadline or with its run, is found
   when the hold is due, at the deadline or at the next look.
3. The outcome names the message by the receipt of its post. A button counts only in the message of that receipt.
"""

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from agents.exceptions import NoReplyPlace
from agents.kernel.redaction import shown, shown_json
from runs.db.sql import database_now
from runs.models import Approval, Delivery, Notification, Run
from runs.notifications.digest_contents import GOES_ON, REQUEST, approval_of
from runs.notifications.message import Request
from runs.notifications.thread_rate import BEYOND, MOST, recent
from runs.ports import ports

# Places whose messages have buttons, and what changes those messages.
OUTCOME_OF = {"slack-request": "slack-outcome", "telegram-request": "telegram-outcome"}
# A failure of these is not reported: the decision is known without them.
UNREPORTED = {*OUTCOME_OF.values(), "slack-whisper"}
PRESSED = "wakeful"  # begins what a button of a request is called: those of others are events
APPROVAL = "approval"  # in a place: the requested approval
LOOK = timedelta(minutes=15)  # between two looks at a request that is still open
TRIED_FOR = timedelta(days=1)
HOLD = "until the request is decided or over"
# UTF-16 units of a request: with all that is around it, Slack and Telegram take no more than 3,000 and 4,096.
LARGEST = 2_800
CUT = "… (too long to show here)"
UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})  # characters that hide others, or change their order


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """It is not sent."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Held:
    """It is not sent yet, and held until the next look."""


@dataclass(frozen=True, kw_only=True)
class Ready:
    request: Request
    place: Mapping[str, Any]


def requests_of(notification: Notification, now: datetime, give_up_at: datetime) -> list[Delivery]:
    """The deliveries of a notification that asks for a decision to where its run was woken; empty: none is posted there."""
    id = approval_of(notification)
    # Others have the same link, such as that of a request which could not be posted.
    if id is None or notification.run_id is None or notification.topic != f"{REQUEST}{id}":
        return []
    approval = Approval.objects.select_related("wait").filter(pk=id, wait__run=notification.run_id, decision="").first()
    events = Run.objects.filter(pk=notification.run_id).values_list("event_ids", flat=True).first()
    if approval is None or not events or approval.is_reply:
        return []
    try:
        found = ports.request_place(events[-1])
    except NoReplyPlace:
        return []
    if _of(id).filter(place__has_key=APPROVAL, status__in=["pending", "sending", "held"]).exists():
        return []  # it is posted already
    place = {**found.to, APPROVAL: str(id), "digest": approval.digest}
    common = {"notification": notification, "name": found.name, "created_at": now}
    post = Delivery(channel=found.kind, place=place, thread=found.thread, **common)
    if recent({found.thread}, now=now)[found.thread] >= MOST:
        post.status, post.reason, post.error, post.ended_at = Delivery.Status.FAILED, BEYOND, BEYOND, now
        return [post]
    post.status, post.due_at, post.give_up_at = Delivery.Status.PENDING, now, give_up_at
    if found.kind not in OUTCOME_OF:
        return [post]
    return [post, _outcome(post, approval, now)]


def hold_outcome(post: Delivery, now: datetime) -> None:
    """A request is posted again: its message is to be changed, too."""
    place: Mapping[str, Any] = post.place or {}
    approval = _approval(place[APPROVAL]) if APPROVAL in place and post.channel in OUTCOME_OF else None
    if approval is None:
        return
    outcome = _outcome(post, approval, now)
    known = Delivery.objects.filter(notification=post.notification_id, channel=outcome.channel)
    if not known.exists():
        outcome.save()
    again = {"status": outcome.status, "reason": outcome.reason, "due_at": outcome.due_at, "ended_at": None}
    known.filter(status=Delivery.Status.SUPPRESSED).update(**again)


def _outcome(post: Delivery, approval: Approval, now: datetime) -> Delivery:
    return Delivery(
        notification=post.notification,
        name=post.name,
        channel=OUTCOME_OF[post.channel],
        place={**(post.place or {}), "post": str(post.pk)},
        status=Delivery.Status.HELD,
        reason=HOLD,
        due_at=_next_look(approval, now),
        created_at=now,
    )


def hurry_outcome(approval_id: UUID) -> None:
    """The approval is decided or over: its messages are changed now. In the caller's transaction, which holds the approval's lock or
    has found it over."""
    held = _of(approval_id).filter(channel__in=list(OUTCOME_OF.values()), status=Delivery.Status.HELD)
    held.update(status=Delivery.Status.PENDING, reason="", due_at=Now(), give_up_at=Now() + TRIED_FOR)


def at_sending(delivery: Delivery, claim: UUID) -> Ready | Held | LeftOut:
    """A request, or its outcome, as it is to be sent now."""
    place: Mapping[str, Any] = delivery.place or {}
    approval = _approval(place[APPROVAL])
    # A digest is removed with the payload of its run, which has ended then.
    if approval is None or (approval.digest not in (place["digest"], "") and not approval.decision):
        return LeftOut(why="what it asks for is gone")
    outcome = outcome_of(approval)
    if "post" not in place:
        if outcome:
            return LeftOut(why="what it asks for was decided or over before it was sent")
        return Ready(request=_request(approval, delivery.pk), place=place)
    post = Delivery.objects.filter(pk=place["post"]).first()
    if post is None or (post.status not in ("pending", "sending") and not post.receipt):
        return LeftOut(why="the request was not posted, or no one knows where")
    if not outcome or not post.receipt:
        hold_on(delivery, claim)
        return Held()
    if delivery.give_up_at is None:  # it is over without a decision, which would have set the time
        Delivery.objects.filter(pk=delivery.pk, claim=claim).update(give_up_at=Now() + TRIED_FOR)
    return Ready(request=_request(approval, post.pk, outcome), place={**place, "message": post.receipt})


def hold_on(delivery: Delivery, claim: UUID) -> None:
    """Hold an outcome that was due too early until the next look. The lock is the one that a decision takes, so that none is missed."""
    place: Mapping[str, Any] = delivery.place or {}
    with transaction.atomic():
        approval = Approval.objects.select_for_update(of=["self"]).select_related("wait__run").get(pk=place[APPROVAL])
        now = database_now()
        # Without a receipt the post is under way.
        due_at = now + timedelta(seconds=15) if outcome_of(approval) else _next_look(approval, now)
        mine = Delivery.objects.filter(pk=delivery.pk, claim=claim, status=Delivery.Status.SENDING)
        mine.update(status=Delivery.Status.HELD, reason=HOLD, due_at=due_at, give_up_at=None, attempts=0)


def outcome_of(approval: Approval) -> str:
    """What became of it, in words; empty: it is open."""
    at = f", {approval.decided_at:%Y-%m-%d %H:%M} UTC" if approval.decided_at else ""
    by = f" by {_visible(approval.decided_by)}{at}."
    match approval.status:
        case "approved":
            return f"Approved{by}"
        case "edited":
            return f"Answered{by}" if approval.is_question else f"Approved with other arguments{by}"
        case "denied":
            return f"Denied{by}"
        case "expired":
            return "It has expired without a decision."
        case "closed" if approval.wait.run.status in GOES_ON:
            return ""
        case "closed":
            return "Its run was stopped before a decision. If the run goes on, decide in the console."
    is_late = approval.wait.due_at is not None and approval.wait.due_at <= database_now()
    return "It has expired without a decision." if is_late else ""


def in_text(request: Request) -> str:
    """For places without buttons."""
    parts = [
        request.title,
        request.question,
        request.detail,
        request.arguments,
        f"Decide in the console: {request.page}",
    ]
    return "\n\n".join(part for part in parts if part)


def _request(approval: Approval, post: UUID, outcome: str = "") -> Request:
    agent = Run.objects.values_list("agent", flat=True).get(pk=approval.wait.run_id)
    is_question = approval.is_question
    asked = None if approval.arguments is None or is_question else approval.arguments
    texts = [shown(approval.question), shown(approval.detail), "" if asked is None else _as_text(asked)]
    question, detail, arguments = (_visible(text) for text in texts)
    is_whole = sum(map(_units, (question, detail, arguments))) <= LARGEST
    if not is_whole:
        question, detail, arguments = _begun(question, 1_000), _begun(detail, 600), _begun(arguments, 1_000)
    return Request(
        id=post,
        title=f"{agent} {'asks' if is_question else 'asks for approval'}",
        question=question,
        detail=detail,
        arguments=arguments,
        page=ports.absolute(f"approval-page:{approval.pk}"),
        is_question=is_question,
        is_whole=is_whole,
        outcome=outcome,
    )


def _as_text(arguments: Any) -> str:
    return json.dumps(shown_json(arguments), indent=2, ensure_ascii=False)


def _visible(text: str) -> str:
    """The text with the characters that a reader does not see, written out."""
    return "".join(
        one if one in "\n\t" or unicodedata.category(one) not in UNSEEN else f"\\u{ord(one):04x}" for one in text
    )


def _begun(text: str, units: int) -> str:
    if _units(text) <= units:
        return text
    return text.encode("utf-16-le")[: 2 * units].decode("utf-16-le", "ignore") + CUT


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _next_look(approval: Approval, now: datetime) -> datetime:
    """Always ahead: the wait of a run that goes on may be late, and not open yet."""
    end, look = approval.wait.due_at, now + LOOK
    return end if end is not None and now < end < look else look


def _approval(id: str) -> Approval | None:
    return Approval.objects.select_related("wait__run").filter(pk=id).first()


def _of(approval_id: UUID) -> Any:
    return Delivery.objects.filter(notification__topic=f"{REQUEST}{approval_id}")
