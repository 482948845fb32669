"""A request for a decision in a chat of Telegram, with buttons. It is sent without a parse mode, so it has no links and no mentions but
what Telegram finds in any text. Telegram cannot tell a repeat."""

from collections.abc import Mapping
from typing import Any, ClassVar

from runs.notifications.channels.channel import Outcome, Sent
from runs.notifications.message import Message, Request
from runs.notifications.places.place import WHOLE_ANSWER, request_of
from runs.notifications.places.telegram import answering, call, fitting
from runs.notifications.requests import PRESSED


class TelegramRequest:
    name: ClassVar[str] = "telegram-request"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        request = request_of(message)
        body = {
            "chat_id": to["chat"],
            "text": words(request),
            "reply_markup": {"inline_keyboard": [_buttons(request)]},
            **answering(to),
        }
        outcome, said = call(to, "sendMessage", body, keep=WHOLE_ANSWER)
        number = said.get("message_id")
        if isinstance(outcome, Sent) and isinstance(number, int):
            return Sent(receipt={"chat": to["chat"], "message": number})
        return outcome


def words(request: Request) -> str:
    """The text of the message; with the outcome, if there is one."""
    parts = [request.title, request.question, request.detail, request.arguments, request.outcome or _hint(request)]
    return fitting("\n\n".join(part for part in parts if part))


def _hint(request: Request) -> str:
    if request.is_question:
        return f"To answer in your own words: {request.page}"
    return f"In the console: {request.page}" if request.is_whole else f"Read all of it and approve it: {request.page}"


def _buttons(request: Request) -> list[Mapping[str, str]]:
    """No one approves here what they have not seen whole."""
    labels = {"approve": "Yes", "deny": "No"} if request.is_question else {"approve": "Approve", "deny": "Deny"}
    choices = labels if request.is_whole else ["deny"]
    return [{"text": labels[one], "callback_data": f"{PRESSED}:{one}:{request.id.hex}"} for one in choices]


PLACE = TelegramRequest()
