"""Signed webhooks, as standardwebhooks.com has them: `https://host/path#whsec_…`. The part behind # is the secret that signs, and
is not sent; without it nothing is signed.

`webhook-id` is the delivery's: a receiver that remembers the ids it has seen does nothing twice, so a message that may have
arrived is sent again.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import ClassVar
from urllib.parse import urldefrag, urlsplit

from agents.guards.addresses import Network
from runs.db import host_clock
from runs.network.outgoing import what_is_wrong_with
from runs.network.posting import CutOff, NotHandedOver, PostResponse, post
from runs.network.signing import LARGEST, PREFIX, SMALLEST, key_of, signature
from runs.notifications.channels.channel import CONNECT, WHOLE, NotNow, Outcome, Refused, Sent, Unknown
from runs.notifications.channels.reach import networks_for, with_hint
from runs.notifications.message import Message

TYPE = "wakeful.notification"
LONGEST_PAUSE = timedelta(hours=1)  # that a receiver may ask for
LATER = frozenset({408, 425, 429, 500, 503})
GAVE_UP = frozenset({502, 504})  # a gateway, on a server behind it that may have got the message


class Webhook:
    name: ClassVar[str] = "webhook"
    can_tell_repeats: ClassVar[bool] = True
    rank: ClassVar[int] = 1

    def takes(self, address: str) -> bool:
        return address.startswith(("https://", "http://"))

    def fault(self, address: str) -> str:
        url, secret = urldefrag(address)
        if wrong := what_is_wrong_with(url):
            return wrong
        try:
            _key(secret)
        except ValueError:
            return f"the part behind # is no signing secret: write {PREFIX} and {SMALLEST} to {LARGEST} bytes in base64"
        return ""

    def shown(self, address: str) -> str:
        """Paths and queries of webhooks often are secrets."""
        parts = urlsplit(address)
        return f"{parts.scheme}://{_host(address)}/…"

    def host(self, address: str) -> str:
        return _host(address)

    def send(self, address: str, message: Message) -> Outcome:
        url, secret = urldefrag(address)
        document = {"type": TYPE, "timestamp": message.at.isoformat(), "data": message.as_json()}
        body = json.dumps(document, ensure_ascii=False).encode()
        at = int(host_clock.now().timestamp())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": f"msg_{message.id}",
            "webhook-timestamp": str(at),
        }
        if secret:
            headers["webhook-signature"] = signature(_key(secret), f"msg_{message.id}", at, body)
        return post_outcome(url, body, headers, networks=networks_for(address))


def post_outcome(url: str, body: bytes, headers: dict[str, str], *, networks: Sequence[Network] | None) -> Outcome:
    """POST it, and what became of it."""
    try:
        answer = post(url, body, headers, connect=CONNECT, whole=WHOLE, networks=networks)
    except NotHandedOver as error:
        return NotNow(why=with_hint(str(error)))
    except CutOff as error:
        return Unknown(why=f"handed over, and then: {error}")
    return outcome_of(answer)


def outcome_of(answer: PostResponse) -> Outcome:
    why = f"it answered {answer.status}"
    if 200 <= answer.status < 300:
        return Sent()
    if answer.status in GAVE_UP:
        return Unknown(why=why)
    if answer.status in LATER or answer.status > 500:
        return NotNow(why=why, after=answer.after and min(answer.after, LONGEST_PAUSE))
    if 300 <= answer.status < 400:
        return Refused(why=f"{why}, a redirect: set the address that it leads to")
    return Refused(why=why)


def _host(address: str) -> str:
    parts = urlsplit(address)
    return f"{parts.hostname}:{parts.port}" if parts.port else f"{parts.hostname}"


def _key(secret: str) -> bytes:
    return key_of(secret) if secret else b""


CHANNEL = Webhook()
