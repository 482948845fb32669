"""What became of a request in Telegram, in its message: `editMessageText`, which may come again. It takes the buttons away."""

from collections.abc import Mapping
from typing import Any, ClassVar

from runs.notifications.channels.channel import Outcome
from runs.notifications.message import Message
from runs.notifications.places.place import request_of
from runs.notifications.places.telegram import call
from runs.notifications.places.telegram_request import words


class TelegramOutcome:
    name: ClassVar[str] = "telegram-outcome"
    can_tell_repeats: ClassVar[bool] = True

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        posted = to["message"]
        body = {
            "chat_id": posted["chat"],
            "message_id": posted["message"],
            "text": words(request_of(message)),
            "link_preview_options": {"is_disabled": True},
        }
        return call(to, "editMessageText", body)[0]


PLACE = TelegramOutcome()
