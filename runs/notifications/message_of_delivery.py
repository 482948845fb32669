"""The message of a delivery: what it carries, as far as a server takes so long a message."""

from runs.models import Delivery, Notification
from runs.notifications.digest_contents import Carried
from runs.notifications.message import Item, Message, shortened
from runs.notifications.recipients import zone_of
from runs.ports import ports

LARGEST = 500_000  # characters of its texts; mail servers refuse some 10 MB, others less
EXPIRED_REQUEST = "It has expired without an answer. "  # before the text of a request


def message_of(delivery: Delivery, carried: Carried) -> Message:
    items: list[Item] = []
    left = LARGEST
    for notification in carried.notifications:
        item = item_of(notification, is_expired=notification.pk in carried.expired)
        left -= len(item.text)
        if left < 0 and items:
            break
        items.append(item)
    more = carried.more + len(carried.notifications) - len(items)
    return Message(id=delivery.pk, to=delivery.name, items=items, more=more, zone=zone_of(delivery.recipient))


def item_of(notification: Notification, *, is_expired: bool) -> Item:
    return Item(
        id=notification.pk,
        text=shortened(f"{EXPIRED_REQUEST}{notification.text}" if is_expired else notification.text),
        sender=notification.sender,
        urgency=notification.urgency,
        topic=notification.topic,
        link=ports.absolute(notification.link) if notification.link else "",
        at=notification.created_at,
    )
