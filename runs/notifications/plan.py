"""Each new notification becomes deliveries, once: one for each recipient, sent, held, merged or suppressed by its rules.

1. One process plans at a time, under an advisory lock, in the order in which the notifications were written.
2. A notification is locked and has no `planned_at`; deliveries and `planned_at` commit together.
3. The held delivery of a recipient is locked before anything is merged into it: if it is being sent meanwhile, it is held no
   longer, and the recipient's rules decide again.
4. The database's clock decides.
5. A notification that cannot be planned does not stop the others: they are planned one by one, and its deliveries fail visibly.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models.functions import Now

from runs.db.errors import ALIKE, is_gone, is_own, name_of
from runs.db.sql import database_now, fetch
from runs.failpoints import failpoint
from runs.models import Delivery, Notification, Recipient, RecipientGroup
from runs.notifications.alarms import topic_of
from runs.notifications.digest_contents import approval_of
from runs.notifications.lock import lock_planning, try_lock
from runs.notifications.policy import History, Hold, Merge, News, Said, Send, Suppress, Verdict, decide
from runs.notifications.recipients import rules_of, sync_settings
from runs.notifications.requests import requests_of

log = structlog.get_logger(__name__)

BATCH = 200  # notifications of one transaction
MOST = 20_000  # deliveries after which a transaction takes no more notifications
ROWS = 1_000  # of one statement: it may have 65,535 parameters
GIVE_UP = timedelta(days=1)  # without a second route
MOST_SAID = 10_000  # notifications about a topic that are read
KNOWN_SHOWN = 10
UNKNOWN = "unknown recipient"
SENT_LAST = """
SELECT recipient.id, (
  SELECT CASE WHEN EXISTS (SELECT FROM runs_delivery WHERE recipient_id = recipient.id AND status IN ('pending', 'sending'))
    THEN clock_timestamp()
    ELSE (SELECT max(sent_at) FROM runs_delivery WHERE recipient_id = recipient.id AND status = 'sent') END)
FROM unnest(%s::bigint[]) recipient (id)
"""
# Deliveries that may have reached the recipient: not those that were suppressed or failed, and not those of an unknown outcome.
# Read backwards to the first of them: a topic may have a long history.
SAID = """
SELECT recipient.id, topic.name, said.text, said.at, said.is_held
FROM unnest(%(topics)s::text[]) topic (name) CROSS JOIN unnest(%(recipients)s::bigint[]) recipient (id)
CROSS JOIN LATERAL (
  SELECT notification.text, coalesce(carrier.sent_at, delivery.sent_at, delivery.created_at) AS at,
    coalesce(carrier.status, delivery.status) = 'held' AS is_held
  FROM (
    SELECT id, text FROM runs_notification WHERE topic = topic.name AND topic <> '' ORDER BY id DESC LIMIT %(most)s::int) notification
  CROSS JOIN LATERAL (
    SELECT * FROM runs_delivery WHERE notification_id = notification.id AND recipient_id = recipient.id OFFSET 0) delivery
  LEFT JOIN runs_delivery carrier ON carrier.id = delivery.merged_into_id
  WHERE coalesce(carrier.status, delivery.status) IN ('held', 'pending', 'sending', 'sent')
  ORDER BY notification.id DESC LIMIT 1) said
"""


@dataclass(kw_only=True)
class Desk:
    """What a recipient got before, as far as the next decision needs it."""

    recipient: Recipient
    held: Delivery | None = None
    last_at: datetime | None = None
    said: dict[str, Said] = field(default_factory=dict)  # by topic

    def decide(self, news: News, now: datetime) -> Verdict:
        if news.topic.startswith(topic_of(unreachable(self.recipient), "")):
            return Suppress(reason="it reports that this recipient cannot be reached")
        held_until = self.held.due_at if self.held else None
        history = History(last_at=self.last_at, held_until=held_until, said=self.said.get(news.topic))
        return decide(rules_of(self.recipient), news, history, now)


def news_of(notification: Notification) -> News:
    return News(
        urgency=notification.urgency,
        topic=notification.topic,
        text=notification.text,
        is_request=approval_of(notification) is not None,
    )


def unreachable(recipient: Recipient) -> str:
    """The name of the alarm that deliveries to it fail."""
    return f"unreachable:{recipient.name}"


class Planner:
    """Decides for the notifications of one transaction, and collects the deliveries."""

    def __init__(self, topics: Iterable[str], now: datetime) -> None:
        self.now = now
        self.made: list[Delivery] = []
        self.served: set[int] = set()  # recipients that have a delivery of the notification already
        recipients = list(Recipient.objects.all())
        self.by_id = {one.pk: one for one in recipients}
        self.by_name = {one.name: [one] for one in recipients}
        for group in RecipientGroup.objects.prefetch_related("members"):
            self.by_name[group.name] = list(group.members.all())
        self.desks = {one.pk: Desk(recipient=one) for one in recipients}
        ids = list(self.desks)
        held = Delivery.objects.select_for_update().filter(status=Delivery.Status.HELD, recipient__in=ids)
        for delivery in held.order_by("id"):
            self.desks[delivery.recipient_id or 0].held = delivery
        for recipient, last_at in fetch(SENT_LAST, [ids]):
            self.desks[recipient].last_at = last_at
        asked = {"topics": sorted(set(topics)), "recipients": ids, "most": MOST_SAID}
        for recipient, topic, text, at, is_held in fetch(SAID, asked) if any(topics) else ():
            self.desks[recipient].said[topic] = Said(text=text, at=at, is_held=is_held)

    def everyone(self) -> list[Recipient]:
        """Who gets what names no recipient, and what reached none of those that it names."""
        return [one for one in self.by_id.values() if one.gets_all and one.active] or self.last_resort()

    def last_resort(self) -> list[Recipient]:
        """The recipient of the settings, which gets what no one else gets."""
        return [one for one in self.by_id.values() if one.is_from_settings and one.active]

    def plan(self, notification: Notification) -> None:
        found = self.recipients_of(notification)
        for recipient in found.values():
            self.deliver(notification, recipient, set(found))
        if approval_of(notification) is not None:
            self._request_in_its_thread(notification)

    def _request_in_its_thread(self, notification: Notification) -> None:
        try:
            with transaction.atomic():
                self.made += requests_of(notification, self.now, self.now + GIVE_UP)
        except Exception as error:
            if is_gone(error):
                raise
            # A request that cannot be planned must not keep the notification from its recipients.
            log.exception("request.not_planned", notification=notification.pk)

    def recipients_of(self, notification: Notification) -> dict[int, Recipient]:
        found: dict[int, Recipient] = {}
        for name in notification.to:
            if name in self.by_name:
                found |= {one.pk: one for one in self.by_name[name]}
            else:
                self._unknown(notification, name)
        # A name that is misspelled, or of one that has left, must not cost a message.
        if not any(one.active for one in found.values()):
            found |= {one.pk: one for one in self.everyone()}
        return found

    def deliver(self, notification: Notification, recipient: Recipient, asked: set[int]) -> None:
        """To this recipient, or where its rules send it."""
        if recipient.pk in self.served:
            return
        desk = self.desks[recipient.pk]
        news = news_of(notification)
        verdict = desk.decide(news, self.now)
        self.carry_out(desk, [notification], verdict)
        second = recipient.second_id
        if isinstance(verdict, Suppress) and verdict.is_rerouted and second is not None and second not in asked:
            asked.add(second)
            self.deliver(notification, self.by_id[second], asked)

    def carry_out(self, desk: Desk, notifications: Sequence[Notification], verdict: Verdict, reason: str = "") -> None:
        """Make the deliveries of notifications that go out together."""
        if isinstance(verdict, Suppress):
            for notification in notifications:
                self._make(desk, notification, status="suppressed", reason=verdict.reason, ended_at=self.now)
            return
        rest = list(notifications)
        if isinstance(verdict, Hold):
            desk.held = self._make(desk, rest.pop(0), status="held", due_at=verdict.until, reason=verdict.reason)
        if isinstance(verdict, Send) or desk.held is None:
            carrier = self._make(desk, rest.pop(0), status="pending", due_at=self.now, reason=reason)
            desk.last_at = self.now
        else:
            carrier = desk.held
            if isinstance(verdict, Merge) and verdict.by is not None:
                self._bring_forward(carrier, verdict.by)
        why = verdict.reason if isinstance(verdict, Merge) else "goes out together with the one before"
        for notification in rest:
            self._make(desk, notification, status="merged", merged_into=carrier, reason=why)
        for notification in notifications:
            if notification.topic:
                said = Said(text=notification.text, at=self.now, is_held=carrier.status == Delivery.Status.HELD)
                desk.said[notification.topic] = said

    def _bring_forward(self, held: Delivery, by: datetime) -> None:
        if held.due_at is None or held.due_at <= by or held.recipient is None:
            return
        held.due_at, held.give_up_at = by, by + patience(held.recipient)
        Delivery.objects.filter(pk=held.pk, status=Delivery.Status.HELD).update(due_at=by, give_up_at=held.give_up_at)

    def _make(self, desk: Desk, notification: Notification, *, status: str, **fields: Any) -> Delivery:
        recipient = desk.recipient
        due_at = fields.get("due_at")
        delivery = Delivery(
            notification=notification,
            recipient=recipient,
            name=recipient.name,
            channel=recipient.channel,
            status=status,
            is_urgent=notification.urgency == Notification.Urgency.HIGH,
            give_up_at=due_at + patience(recipient) if due_at else None,
            created_at=self.now,
            **fields,
        )
        self.made.append(delivery)
        return delivery

    def _unknown(self, notification: Notification, name: str) -> None:
        known = sorted(self.by_name)
        names = ", ".join(known[:KNOWN_SHOWN]) + (", …" if len(known) > KNOWN_SHOWN else "") if known else "none"
        self.made.append(
            Delivery(
                notification=notification,
                name=name,
                status=Delivery.Status.SUPPRESSED,
                reason=f"{UNKNOWN} {name!r}; there are: {names}",
                created_at=self.now,
                ended_at=self.now,
            )
        )

    def write(self) -> None:
        # Carriers first: `merged_into` refers to them.
        carriers_first = sorted(self.made, key=lambda one: one.merged_into_id is not None)
        Delivery.objects.bulk_create(carriers_first, batch_size=ROWS)


def patience(recipient: Recipient | None) -> timedelta:
    """How long a message to it, or a reply, is tried again before it fails, or takes the second route."""
    return recipient.second_after if recipient and recipient.second_id else GIVE_UP


def plan(limit: int = BATCH) -> int:
    """Plan the next notifications; returns how many. 0 also while another process plans."""
    try:
        return _plan(limit)
    except Exception as error:
        if is_gone(error):
            raise
        log.exception("notifications.not_planned")
        return _one_by_one(limit)


def _one_by_one(limit: int) -> int:
    """Each in a transaction of its own. Where it fails by its own fault while others succeed, its deliveries fail. Raises the first
    other error."""
    unplanned = Notification.objects.filter(planned_at=None)
    count, failed = _each(list(unplanned.order_by("created_at", "id").values_list("id", flat=True)[:limit]))
    if not count:  # those that fail must not stop all that are behind them
        newest = unplanned.exclude(pk__in=failed).order_by("-created_at", "-id").values_list("id", flat=True)[:limit]
        count, others = _each(sorted(newest))
        failed |= others
    own = {id: why for id, why in failed.items() if count and is_own(why)}
    for id, why in own.items():
        _give_up(id, why)
    for id, why in failed.items():
        if id not in own:
            raise why
    return count + len(own)


def _each(ids: Iterable[int]) -> tuple[int, dict[int, Exception]]:
    """How many were planned, and the errors of the others. It stops where nothing but the database seems to be at fault."""
    count, failed, alike = 0, dict[int, Exception](), 0
    for id in ids:
        try:
            count += _plan(1, id)
            alike = 0
        except Exception as error:
            if is_gone(error):
                raise
            failed[id] = error
            alike = 0 if is_own(error) else alike + 1
            if alike == ALIKE:
                break
    return count, failed


def _give_up(id: int, error: Exception) -> None:
    """Plan it for each recipient alone, and where that fails, by none of the recipient's rules, as a delivery that has failed: a person
    sees it, and sends it again."""
    log.error("notification.given_up", notification=id, exc_info=error)
    with transaction.atomic():
        lock_planning()
        notification = Notification.objects.select_for_update().filter(pk=id, planned_at=None).first()
        if notification is None:
            return
        recipients = _planner_of(notification).recipients_of(notification)
        for recipient in recipients.values():
            planner = _planner_of(notification)
            try:
                with transaction.atomic():
                    planner.deliver(notification, recipient, set(recipients))
                    planner.write()
            except Exception as reason:
                if is_gone(reason):
                    raise
                _fail(notification, recipient, name_of(reason))
        Notification.objects.filter(pk=id).update(planned_at=Now())


def _planner_of(notification: Notification) -> Planner:
    planner = Planner([notification.topic], database_now())
    planner.served = {one for one in notification.deliveries.values_list("recipient_id", flat=True) if one is not None}
    return planner


def _fail(notification: Notification, recipient: Recipient, why: str) -> None:
    why = f"it could not be planned: {why}"
    Delivery.objects.create(
        notification=notification,
        recipient=recipient,
        name=recipient.name,
        channel=recipient.channel,
        status=Delivery.Status.FAILED,
        reason=why,
        error=why,
        ended_at=Now(),
    )
    Recipient.objects.filter(pk=recipient.pk, failing_since=None).update(failing_since=Now())


def _plan(limit: int, only: int | None = None) -> int:
    with transaction.atomic():
        if not try_lock():
            return 0
        unplanned = Notification.objects.select_for_update(skip_locked=True).filter(planned_at=None)
        if only is not None:
            unplanned = unplanned.filter(pk=only)
        notifications = list(unplanned.order_by("created_at", "id")[:limit])
        if not notifications:
            return 0
        sync_settings()
        planner = (
            Planner([one.topic for one in notifications], database_now())
            if only is None
            else _planner_of(notifications[0])
        )
        ids = []
        for notification in notifications:
            planner.plan(notification)
            ids.append(notification.pk)
            if len(planner.made) >= MOST:
                break
        planner.write()
        Notification.objects.filter(pk__in=ids, planned_at=None).update(planned_at=Now())
        failpoint("before_plan_commit")
    failpoint("after_plan_commit")
    return len(ids)
