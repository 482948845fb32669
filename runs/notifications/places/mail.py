"""A thread of mail. No mail server can tell a repeat; a mailbox can, by the Message-ID, which is the delivery's."""

from collections.abc import Mapping
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from email.utils import format_datetime
from typing import Any, ClassVar

from runs.network.mail_server import OUR_ID
from runs.notifications.channels.channel import Outcome
from runs.notifications.channels.mail import SENDER, send_letter
from runs.notifications.message import Message
from runs.notifications.places.place import text_of

IDS = frozenset({"in-reply-to", "references"})


class _Policy(EmailPolicy):
    """`email` writes an id that is longer than a line as an encoded word, which no mail program reads as an id."""

    def fold_binary(self, name: str, value: str) -> bytes:
        if name.lower() not in IDS:
            return super().fold_binary(name, value)
        return b"%s: %s\r\n" % (name.encode("ascii"), "\r\n ".join(value.split()).encode("ascii"))


WIRE = _Policy(linesep="\r\n", cte_type="7bit")


class MailThread:
    name: ClassVar[str] = "mail-thread"
    can_tell_repeats: ClassVar[bool] = False

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        return send_letter(lambda sender: _letter(sender, to, message))


def _letter(sender: str, to: Mapping[str, Any], message: Message) -> EmailMessage:
    letter = EmailMessage(policy=WIRE)
    letter["From"] = Address(display_name=SENDER, addr_spec=sender)
    letter["To"] = Address(addr_spec=to["address"])
    if to["reply_to"] != sender.lower():
        letter["Reply-To"] = Address(addr_spec=to["reply_to"])
    letter["Subject"] = to["subject"]
    letter["Date"] = format_datetime(message.at)
    letter["Message-ID"] = f"<{message.id}{OUR_ID}"
    if to["in_reply_to"]:
        letter["In-Reply-To"] = to["in_reply_to"]
    if to["references"]:
        letter["References"] = " ".join(to["references"])
    letter["Auto-Submitted"] = "auto-replied"  # RFC 3834: so that no program answers
    letter["X-Auto-Response-Suppress"] = "All"  # the same for Exchange
    letter.set_content(text_of(message))
    return letter


PLACE = MailThread()
