"""The inbox of a user of the console: `inbox:ada`. The delivery itself is the message, so it cannot fail."""

from typing import ClassVar

from runs.notifications.channels.channel import Outcome, Sent
from runs.notifications.message import Message

PREFIX = "inbox:"


class Inbox:
    name: ClassVar[str] = "inbox"
    can_tell_repeats: ClassVar[bool] = True
    rank: ClassVar[int] = 2

    def takes(self, address: str) -> bool:
        return address.startswith(PREFIX)

    def fault(self, address: str) -> str:
        return "" if address.removeprefix(PREFIX).strip() else "write the name of a user of the console: inbox:ada"

    def shown(self, address: str) -> str:
        return address

    def host(self, address: str) -> str:
        return ""

    def send(self, address: str, message: Message) -> Outcome:
        return Sent()


CHANNEL = Inbox()
