"""Incoming webhooks of Slack: `https://hooks.slack.com/services/…`. `slack+https://…` is the same at another host that takes them,
such as Mattermost's. Slack cannot tell a repeat, so a message that may have arrived is not sent again."""

import json
import re
from typing import ClassVar
from urllib.parse import urlsplit

from runs.network.outgoing import what_is_wrong_with
from runs.notifications.channels.channel import Outcome
from runs.notifications.channels.reach import networks_for
from runs.notifications.channels.webhook import post_outcome
from runs.notifications.message import Message

HOSTS = ("https://hooks.slack.com/", "https://hooks.slack-gov.com/")
LONGEST = 30_000  # characters; Slack refuses 40,000
# Others than Slack read `@all` and `[text](address)`: a space without width ends both.
BEFORE = re.compile(r"(?<![\w.+-])@(?=\w)|\](?=[(\[])")
UNSEEN = "\u200b"


class Slack:
    name: ClassVar[str] = "slack"
    can_tell_repeats: ClassVar[bool] = False
    rank: ClassVar[int] = 0

    def takes(self, address: str) -> bool:
        return address.startswith((*HOSTS, "slack+https://", "slack+http://"))

    def fault(self, address: str) -> str:
        return what_is_wrong_with(_url(address))

    def shown(self, address: str) -> str:
        return f"slack at {self.host(address)}"

    def host(self, address: str) -> str:
        parts = urlsplit(_url(address))
        return f"{parts.hostname}:{parts.port}" if parts.port else f"{parts.hostname}"

    def send(self, address: str, message: Message) -> Outcome:
        body = json.dumps({"text": escaped(message.text)}, ensure_ascii=False).encode()
        headers = {"Content-Type": "application/json; charset=utf-8"}
        return post_outcome(_url(address), body, headers, networks=networks_for(address))


def _url(address: str) -> str:
    return address.removeprefix("slack+")


def escaped(text: str) -> str:
    """A text of strangers must not mention a channel or hide a link."""
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    text = BEFORE.sub(r"\g<0>" + UNSEEN, text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


CHANNEL = Slack()
