"""Replies: answers of runs to the messages that woke them. An outbox message, committed with the run or the step, becomes a notification
with one delivery, which has a place instead of a recipient (`runs.notifications.places`)."""

from collections.abc import Sequence
from typing import Any

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.models import Delivery, Notification
from runs.notifications.plan import patience

REPLY = "reply"  # the outbox topic


def enter_replies(payloads: Sequence[dict[str, Any]]) -> None:
    """In the transaction that deletes the messages, in their order: no rule of a recipient holds a reply back."""
    now = database_now()
    for payload in payloads:
        place = payload["place"]
        notification = Notification.objects.create(
            sender=payload["sender"],
            run_id=payload["run"],
            text=payload["text"],
            link=f"run:{payload['run']}" if payload["run"] else "",
            planned_at=now,
        )
        Delivery.objects.create(
            notification=notification,
            name=place["name"],
            channel=place["kind"],
            place=place["to"],
            thread=place["thread"],
            status=Delivery.Status.PENDING,
            due_at=now,
            give_up_at=now + patience(None),
        )
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
