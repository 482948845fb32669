"""Answers to mail. Who has sent a message is what a stranger wrote into it, so the operator names who may be answered; and what a program
has sent is never answered (RFC 3834), so that no two programs answer each other without an end.

They leave by the mail server of the notifications (EMAIL_URL), not by the mailbox: one way for all kinds of mailbox, whose connection
only reads; and the answer keeps its Message-ID and the headers of its thread, which some APIs of providers choose themselves."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings as installation

from runs.network.mail_server import OUR_ID, MailServer
from triggers.models import Event
from triggers.sources.polling.poller import PollSettings
from triggers.sources.replies import (
    NO,
    YES,
    Answer,
    Unanswerable,
    approvals_setting,
    reply_setting,
    require_approvals,
    require_on,
)
from triggers.sources.settings import InvalidSettings, setting

EVERYONE = "*"
DOMAIN = re.compile(r"(?=.{1,250}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z](?:[a-z0-9-]{0,61}[a-z0-9])")
# Without % and !, by which some servers forward, and without quotes.
NAME = re.compile(r"[a-z0-9+=_#$&'*/?^{|}~-]+(?:\.[a-z0-9+=_#$&'*/?^{|}~-]+)*")
NO_PERSON = re.compile(r"(?:mailer-daemon|postmaster|bounces?|(?:do[-_.]?)?not?[-_.]?reply)(?:[+=._-].*)?")
ID = re.compile(r"<[!-;=?-~]{1,300}>")
MOST_REFERENCES = 50  # after the first, which is the thread's
MOST_ANSWERS = 20  # of agents among the references: a program that says nowhere that it is one may be at the other end
LONGEST_SUBJECT = 200
ANSWERS_ALREADY = re.compile(r"(?:re|aw|sv|antw)\s*(?:\[\d+\])?\s*:", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class MailReplySettings(PollSettings):
    """Whether agents may answer, and whom."""

    reply: str = reply_setting()
    answers_to: str = setting(
        "",
        "Who may be answered",
        "Addresses and domains, such as ada@example.org, example.com; with “ask” also * for all who write. Who has sent a message can be "
        "forged: who is named here may get an answer to what others have written.",
        check=lambda value: _wrong_among(value),
    )
    mailbox_address: str = setting(
        "",
        "Address of the mailbox",
        "Where the next message of the thread is to arrive: the Reply-To of the answers. It is never answered itself.",
        check=lambda value: "" if not value or is_plain_address(value.lower()) else "must be a mail address",
    )

    approvals: str = approvals_setting()

    def __post_init__(self) -> None:
        if self.reply == self.approvals == NO:
            return
        if not self.own_address:
            raise InvalidSettings({"mailbox_address": "enter the address of the mailbox: answers name it in Reply-To"})
        if not self.answerable:
            raise InvalidSettings({"answers_to": "name who may be answered: addresses and domains"})
        if self.reply == YES and EVERYONE in self.answerable:
            raise InvalidSettings(
                {"answers_to": "* goes with “ask” alone: a forged message would have an answer sent to any address"}
            )
        if self.approvals == YES and EVERYONE in self.answerable:
            raise InvalidSettings(
                {"answers_to": "requests for approval go to named addresses and domains alone, not to *"}
            )

    @property
    def answerable(self) -> Sequence[str]:
        return self.answers_to.lower().replace(",", " ").split()

    @property
    def own_address(self) -> str:
        return self.mailbox_address.lower()


def mail_answer(event: Event, settings: MailReplySettings) -> Answer:
    """In the thread of a message, to its sender alone. Raises Unanswerable."""
    require_on(settings.reply)
    return _answer(event, settings)


def mail_request(event: Event, settings: MailReplySettings) -> Answer:
    """Where the sender is shown what is to be decided, in the console: a mail proves no one, so it holds no key. Raises Unanswerable."""
    require_approvals(settings.approvals)
    return _answer(event, settings)


def _answer(event: Event, settings: MailReplySettings) -> Answer:
    data = event.data if isinstance(event.data, dict) else {}
    address = _sender(data)
    _require_a_person(data, address, settings)
    references = _references(data)
    if sum(one.endswith(OUR_ID) for one in references) >= MOST_ANSWERS:
        raise Unanswerable(f"agents have answered {MOST_ANSWERS} times in this thread: a person goes on with it")
    message_id = str(data.get("message_id", ""))
    return Answer(
        kind="mail-thread",
        to={
            "host": "smtp",  # that of the channel: all mail goes through one server
            "address": address,
            "reply_to": settings.own_address,
            "subject": _subject(str(data.get("subject", ""))),
            "in_reply_to": message_id if ID.fullmatch(message_id) else "",
            "references": references,
        },
        name=f"mail to {address}",
        # A stranger may name the thread of others. With the address, that is another conversation.
        thread=f"{address}:{data.get('thread_id') or event.ce_id}",
        asks=settings.reply != YES,
    )


def is_plain_address(text: str) -> bool:
    """Is it an address that can only mean one mailbox?"""
    name, _, domain = text.rpartition("@")
    return len(name) <= 64 and bool(NAME.fullmatch(name) and DOMAIN.fullmatch(domain))


def _wrong_among(value: str) -> str:
    found = value.lower().replace(",", " ").split()
    wrong = next((one for one in found if one != EVERYONE and not (DOMAIN.fullmatch(one) or is_plain_address(one))), "")
    return f"{wrong!r} is no address and no domain" if wrong else ""


def _sender(data: dict[str, Any]) -> str:
    """The address in From; that in Reply-To only within its domain."""
    sender = _address_of(data.get("from"))
    if not is_plain_address(sender):
        raise Unanswerable("the message names no sender with a plain mail address")
    others = data.get("reply_to")
    wished = {_address_of(one) for one in others} if isinstance(others, list) else set()
    if not wished or wished == {sender}:
        return sender
    chosen = wished.pop()
    if wished or not is_plain_address(chosen) or _domain(chosen) != _domain(sender):
        raise Unanswerable(
            "its Reply-To leads elsewhere than to its sender, which is how answers are led astray: a person answers this message"
        )
    return chosen


def _require_a_person(data: dict[str, Any], address: str, settings: MailReplySettings) -> None:
    if data.get("is_automatic") is not False or data.get("list_id"):
        raise Unanswerable(
            "a list or a program has sent the message (RFC 3834), and programs that answer each other would not end. Leave them out by a "
            "filter of the trigger: !event.data.is_automatic"
        )
    if NO_PERSON.fullmatch(address.rpartition("@")[0]):
        raise Unanswerable(f"no person reads {address}")
    try:
        sender = MailServer.parse(installation.EMAIL_URL).sender.lower()
    except ValueError as error:
        raise Unanswerable(f"answers leave by the mail server of EMAIL_URL, which is not usable: {error}") from None
    if address in (settings.own_address, sender):
        raise Unanswerable(f"{address} is an address of this installation, which would answer itself without an end")
    if not {address, _domain(address), EVERYONE} & set(settings.answerable):
        raise Unanswerable(f"its setting “Who may be answered” names neither {address} nor {_domain(address)}")


def _references(data: dict[str, Any]) -> list[str]:
    """RFC 5322 §3.6.4: those of the message, and the message itself."""
    earlier = data.get("references")
    found = earlier if isinstance(earlier, list) and earlier else [data.get("in_reply_to")]
    ids = [one for one in (*found, data.get("message_id")) if isinstance(one, str) and ID.fullmatch(one)]
    return ids[:1] + ids[1:][-MOST_REFERENCES:]


def _subject(subject: str) -> str:
    """One line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in subject).split())[:LONGEST_SUBJECT]
    return line if ANSWERS_ALREADY.match(line) else f"Re: {line}".strip()


def _address_of(person: Any) -> str:
    return str(person.get("address", "")).lower() if isinstance(person, dict) else ""


def _domain(address: str) -> str:
    return address.rpartition("@")[2]
