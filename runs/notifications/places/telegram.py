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
from runs.notifications.channels.channel import NotNow, Outcome, Refused, Sent
from runs.notifications.channels.reach import networks_for
from runs.notifications.message import Message
from runs.notifications.places.place import KEPT, judged, post_json, text_of
from runs.notifications.recipients import address_of

API = "https://api.telegram.org"
BOT = re.compile(r"tgram://(?:bot)?([0-9]{1,20}:[A-Za-z0-9_-]{10,100})(?:[/?#].*)?", re.IGNORECASE)
LONGEST = 4096  # UTF-16 units, as Telegram counts
CUT = "… (shortened; the console shows all of it)"
LONGEST_PAUSE = 3_600  # seconds
UNCHANGED = b"message is not modified"  # a change that comes again


class TelegramChat:
    name: ClassVar[str] = "telegram-chat"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        body: dict[str, Any] = {
            "chat_id": to["chat"],
            "text": fitting(text_of(message)),
            **answering(to),
        }
        return call(to, "sendMessage", body)[0]


def answering(to: Mapping[str, Any]) -> dict[str, Any]:
    """In the topic of the message, as an answer to it."""
    topic = {} if to["topic"] is None else {"message_thread_id": to["topic"]}
    return {
        "reply_parameters": {"message_id": to["message"], "allow_sending_without_reply": True},
        "link_preview_options": {"is_disabled": True},
        **topic,
    }


def call(
    to: Mapping[str, Any], method: str, body: Mapping[str, Any], *, keep: int = KEPT
) -> tuple[Outcome, Mapping[str, Any]]:
    """Call a method of the Bot API; with its result, if that is kept whole."""
    recipient = Recipient.objects.filter(name=to["recipient"]).first()
    if recipient is None or not recipient.active:
        return Refused(why=f"there is no active recipient {to['recipient']}, whose bot answers"), {}
    bot = BOT.fullmatch(unquote(address_of(recipient)))
    if bot is None:
        return Refused(why=f"the address of recipient {recipient.name} has no bot: tgram://<token>/<chat>"), {}
    token = bot[1]
    know(token)
    url = f"{API}/bot{token}/{method}"
    answer = post_json(url, body, {}, networks_for(url), keep=keep)
    outcome = judged(answer)
    if isinstance(outcome, NotNow) and isinstance(answer, PostResponse):
        return replace(outcome, after=_pause(answer.begins) or outcome.after), {}
    if isinstance(answer, PostResponse) and answer.status == 400 and UNCHANGED in answer.begins:
        return Sent(), {}
    return outcome, _result(answer.begins) if isinstance(answer, PostResponse) else {}


def _result(answer: bytes) -> Mapping[str, Any]:
    with suppress(ValueError, TypeError, KeyError):
        result = json.loads(answer)["result"]
        return result if isinstance(result, dict) else {}
    return {}


def _pause(answer: bytes) -> timedelta | None:
    with suppress(ValueError, TypeError, KeyError, AttributeError):
        return timedelta(seconds=min(int(json.loads(answer)["parameters"]["retry_after"]), LONGEST_PAUSE))
    return None


def fitting(text: str) -> str:
    if len(text.encode("utf-16-le")) // 2 <= LONGEST:
        return text
    room = 2 * (LONGEST - len(CUT))
    return text.encode("utf-16-le")[:room].decode("utf-16-le", "ignore") + CUT


PLACE = TelegramChat()
