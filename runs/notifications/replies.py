"""Replies: answers of runs to the messages that woke them. An outbox message, committed with the run or the step, becomes a notification
with one delivery, which has a place instead of a recipient (`runs.notifications.places`)."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.models import Delivery, Notification
from runs.notifications.plan import patience

REPLY = "reply"  # the outbox topic
# Replies of a thread within an hour: two agents, or an agent and a bot, that answer each other would not end.
MOST = 200
BEYOND = (
    f"its thread has got {MOST} replies within an hour, so two may be answering each other; if not, send this one again"
)
ERASED_PLACE = {"host": "", "is_erased": True}  # of a reply whose run was erased


def enter_replies(payloads: Sequence[dict[str, Any]]) -> None:
    """In the transaction that deletes the messages, in their order: no rule of a recipient holds a reply back. Those beyond MOST fail,
    and a person may send them."""
    now = database_now()
    recent = _recent({payload["place"]["thread"] for payload in payloads}, since=now - timedelta(hours=1))
    beyond: dict[str, Delivery] = {}
    for payload in payloads:
        place = payload["place"]
        notification = Notification.objects.create(
            sender=payload["sender"],
            run_id=payload["run"],
            text=payload["text"],
            link=f"run:{payload['run']}" if payload["run"] else "",
            planned_at=now,
        )
        recent[place["thread"]] += 1
        is_beyond = recent[place["thread"]] > MOST
        pending = {"status": Delivery.Status.PENDING, "due_at": now, "give_up_at": now + patience(None)}
        failed = {"status": Delivery.Status.FAILED, "error": BEYOND, "reason": BEYOND, "ended_at": now}
        delivery = Delivery.objects.create(
            notification=notification,
            name=place["name"],
            channel=place["kind"],
            place=place["to"],
            thread=place["thread"],
            **(failed if is_beyond else pending),
        )
        if is_beyond:
            beyond.setdefault(delivery.thread, delivery)
    for delivery in beyond.values():
        report_failed_reply(delivery, BEYOND)
    nudge_dispatcher()


def _recent(threads: set[str], *, since: datetime) -> Counter[str]:
    """How many replies of each thread were to be sent since then."""
    made = Delivery.objects.filter(thread__among=sorted(threads - {""}), created_at__gt=since).exclude(thread="")
    were_sent = made.filter(~Q(status=Delivery.Status.FAILED) | Q(attempts__gt=0))
    return Counter(dict(were_sent.values_list("thread").annotate(Count("id")).values_list("thread", "id__count")))


def report_failed_reply(delivery: Delivery, why: str) -> None:
    """Notify those who get what names no recipient; the same failure in the same thread is sent once a day."""
    failed = delivery.notification
    Notification.objects.create(
        sender=failed.sender,
        run_id=failed.run_id,
        text=f"A reply of {failed.sender} could not be sent ({delivery.name}): {why}",
        topic=f"reply:{delivery.thread}"[:200],
        link=failed.link,
    )
