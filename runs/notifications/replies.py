"""Replies: answers of runs to the messages that woke them. An outbox message, committed with the run or the step, becomes a notification
with one delivery, which has a place instead of a recipient (`runs.notifications.places`)."""

from collections.abc import Sequence
from typing import Any

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.models import Delivery, Notification
from runs.notifications.plan import patience
from runs.notifications.thread_rate import BEYOND, MOST, recent

REPLY = "reply"  # the outbox topic
ERASED_PLACE = {"host": "", "is_erased": True}  # of a reply whose run was erased


def enter_replies(payloads: Sequence[dict[str, Any]]) -> None:
    """In the transaction that deletes the messages, in their order: no rule of a recipient holds a reply back. Those beyond MOST fail,
    and a person may send them."""
    now = database_now()
    counts = recent({payload["place"]["thread"] for payload in payloads}, now=now)
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
        counts[place["thread"]] += 1
        is_beyond = counts[place["thread"]] > MOST
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
