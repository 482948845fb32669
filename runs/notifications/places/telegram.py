"""A chat of Telegram, by the bot of a recipient of notifications. Telegram cannot tell a repeat."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import unquote

from agents.kernel.redaction import know
from runs.models import Recipient
from runs.network.posting import PostResponse
from runs.notifications.channels.channel import NotNow, Outcome, Refused
from runs.notifications.channels.reach import networks_for
from runs.notifications.message import Message
from runs.notifications.places.place import judged, post_json, text_of
from runs.notifications.recipients import address_of

API = "https://api.telegram.org"
BOT = re.compile(r"tgram://(?:bot)?([0-9]{1,20}:[A-Za-z0-9_-]{10,100})(?:[/?#].*)?", re.IGNORECASE)
LONGEST = 4096  # UTF-16 units, as Telegram counts
CUT = "… (shortened; the console shows all of it)"
LONGEST_PAUSE = 3_600  # seconds


class TelegramChat:
    name: ClassVar[str] = "telegram-chat"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        recipient = Recipient.objects.filter(name=to["recipient"]).first()
        if recipient is None or not recipient.active:
            return Refused(why=f"there is no active recipient {to['recipient']}, whose bot answers")
        bot = BOT.fullmatch(unquote(address_of(recipient)))
        if bot is None:
            return Refused(why=f"the address of recipient {recipient.name} has no bot: tgram://<token>/<chat>")
        token = bot[1]
        know(token)
        body: dict[str, Any] = {
            "chat_id": to["chat"],
            "text": _fitting(text_of(message)),
            "reply_parameters": {"message_id": to["message"], "allow_sending_without_reply": True},
            "link_preview_options": {"is_disabled": True},
        }
        if to["topic"] is not None:
            body["message_thread_id"] = to["topic"]
        url = f"{API}/bot{token}/sendMessage"
        answer = post_json(url, body, {}, networks_for(url))
        outcome = judged(answer)
        if isinstance(outcome, NotNow) and isinstance(answer, PostResponse):
            return replace(outcome, after=_pause(answer.begins) or outcome.after)
        return outcome


def _pause(answer: bytes) -> timedelta | None:
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        return timedelta(seconds=min(int(json.loads(answer)["parameters"]["retry_after"]), LONGEST_PAUSE))
    return None


def _fitting(text: str) -> str:
    if len(text.encode("utf-16-le")) // 2 <= LONGEST:
        return text
    room = 2 * (LONGEST - len(CUT))
    return text.encode("utf-16-le")[:room].decode("utf-16-le", "ignore") + CUT


PLACE = TelegramChat()
