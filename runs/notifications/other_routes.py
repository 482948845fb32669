"""Other routes of a message that failed at its recipient: the second one of that recipient, and those who get what no one else gets."""

from collections.abc import Sequence

import structlog
from django.db.models import Q

from runs.db.sql import database_now
from runs.models import Delivery, Notification, Recipient
from runs.notifications.digest_contents import approval_of
from runs.notifications.plan import Planner
from runs.notifications.policy import ORDER, News, Suppress

log = structlog.get_logger(__name__)

# A delivery that was suppressed as nothing new is not among them: the one before it may have failed as well.
REACHING = ["pending", "held", "sending", "sent", "unknown"]  # a delivery that has reached its recipient, or may still


def take_second_route(delivery: Delivery) -> str:
    """Plan the message of a delivery that failed for the second route of its recipient, in the caller's transaction, which holds
    the lock of planning. Returns the name of the recipient that gets it; empty if there is no such route, or if it has got all of
    it already."""
    recipient = delivery.recipient
    if recipient is None or recipient.second_id is None:
        return ""
    carried = Delivery.objects.filter(Q(pk=delivery.pk) | Q(merged_into=delivery.pk))
    ids = list(carried.values_list("notification_id", flat=True))
    planner = Planner([], database_now())
    tried = {recipient.pk}
    name = ""
    while recipient.second_id is not None and recipient.second_id not in tried:
        tried.add(recipient.second_id)
        desk = planner.desks[recipient.second_id]
        told = Delivery.objects.filter(recipient=desk.recipient, notification__id__among=ids)
        new = set(ids) - set(told.values_list("notification_id", flat=True))
        left = list(Notification.objects.filter(id__among=sorted(new)).order_by("id"))
        if not left:
            break
        verdict = desk.decide(_news_of_all(left), planner.now)
        planner.carry_out(desk, left, verdict, reason=f"second route of {recipient.name}")
        recipient = desk.recipient
        if not isinstance(verdict, Suppress):
            name = recipient.name
            break
        if not verdict.is_rerouted:
            break
    planner.write()
    if name:
        log.info("delivery.second_route", delivery=str(delivery.pk), recipient=name)
    return name


def take_default_route(delivery: Delivery) -> list[str]:
    """Plan what a failed delivery carried, and what has reached no other recipient, for those who get what names no recipient, in the
    caller's transaction, which holds the lock of planning. Returns their names."""
    carried = Delivery.objects.filter(Q(pk=delivery.pk) | Q(merged_into=delivery.pk))
    ids = set(carried.values_list("notification_id", flat=True))
    # A request that is posted where its run was woken reaches no recipient.
    others = Delivery.objects.filter(notification__id__among=sorted(ids), place__isnull=True).exclude(
        pk__in=carried.values("pk")
    )
    reached = others.filter(Q(status__in=REACHING) | Q(status="merged", merged_into__status__in=REACHING))
    left = ids - set(reached.values_list("notification_id", flat=True))
    planner = Planner([], database_now())
    names = _pass_on(planner, planner.everyone(), left, delivery) or _pass_on(
        planner, planner.last_resort(), left, delivery
    )
    planner.write()
    if names:
        log.info("delivery.default_route", delivery=str(delivery.pk), recipients=names)
    return names


def _pass_on(planner: Planner, recipients: Sequence[Recipient], left: set[int], failed: Delivery) -> list[str]:
    """The names of those that get something of it."""
    names = []
    for recipient in recipients if left else ():
        tried = Delivery.objects.filter(recipient=recipient, notification__id__among=sorted(left))
        new = left - set(tried.values_list("notification_id", flat=True))
        if not (notifications := list(Notification.objects.filter(id__among=sorted(new)).order_by("id"))):
            continue
        desk = planner.desks[recipient.pk]
        verdict = desk.decide(_news_of_all(notifications), planner.now)
        planner.carry_out(desk, notifications, verdict, reason=f"{failed.name} could not be reached")
        if not isinstance(verdict, Suppress):
            names.append(recipient.name)
    return names


def _news_of_all(notifications: Sequence[Notification]) -> News:
    """Of a message that carries these: as urgent as the most urgent one."""
    urgency = max((one.urgency for one in notifications), key=ORDER.__getitem__)
    return News(urgency=urgency, topic="", text="", is_request=any(approval_of(one) for one in notifications))
