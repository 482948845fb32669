"""The address that a source of webhooks declares for replies, signed as standardwebhooks.com has it with the source's own secret.
`webhook-id` is the delivery's, so a reply that may have arrived is sent again."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar
from uuid import UUID

from runs.db import host_clock
from runs.network.signing import key_of, signature
from runs.notifications.channels.channel import Outcome
from runs.notifications.channels.reach import networks_for
from runs.notifications.channels.webhook import post_outcome
from runs.notifications.message import Message
from runs.notifications.places.place import text_of
from runs.ports import ports

TYPE = "wakeful.reply"


class WebhookReply:
    name: ClassVar[str] = "webhook-reply"
    can_tell_repeats: ClassVar[bool] = True

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        data = {"event": to["event"], "event_id": to["event_id"], "text": text_of(message)}
        document = {"type": TYPE, "timestamp": message.at.isoformat(), "data": data}
        body = json.dumps(document, ensure_ascii=False).encode()
        id, at = f"msg_{message.id}", int(host_clock.now().timestamp())
        headers = {"Content-Type": "application/json", "webhook-id": id, "webhook-timestamp": str(at)}
        if secret := ports.secret_of(UUID(to["source"])):
            headers["webhook-signature"] = signature(_key(secret), id, at, body)
        return post_outcome(to["url"], body, headers, networks=networks_for(to["url"]))


def _key(secret: str) -> bytes:
    """A secret of another format is the key as it is."""
    try:
        return key_of(secret)
    except ValueError:
        return secret.encode()


PLACE = WebhookReply()
