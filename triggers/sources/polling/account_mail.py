"""What mailboxes that are read by an API and a connection share: the messages of a change, one by one, in the shape of `mailbox`."""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from triggers.models import Event
from triggers.sources.continuity import Gap, Gaps, Reason
from triggers.sources.kind import Group
from triggers.sources.polling.by_connection import Account, connection_named
from triggers.sources.polling.mail_replies import MailReplySettings, mail_answer, mail_request
from triggers.sources.polling.mailbox import MOST_MESSAGES, received
from triggers.sources.polling.poller import ALL, SECONDS, Polled, Poller, PollingReader
from triggers.sources.polling.unread import Unread, event_of
from triggers.sources.replies import Answer
from triggers.sources.runner import BATCH_BYTES, Poison, Received, SourceError
from triggers.sources.settings import InvalidSettings, setting

AGAIN = timedelta(days=7)  # how far back mail is listed again after its history has expired
MOST_WAITING = 2_000  # messages of a poll that are still to be read
OPEN_FOR = timedelta(hours=1)
EXPIRED = (
    "The provider has forgotten what has changed since the last poll. The messages of the last seven days are read again; those that were "
    "recorded are no further events. What came and was deleted meanwhile has none."
)
GAPS = Gaps(
    are_seen=True, how="when the provider has forgotten what has changed since the last poll. How many is not known."
)


@dataclass(frozen=True, kw_only=True)
class AccountMailSettings(MailReplySettings):
    """Whose mail."""

    connection: str = setting(
        "", "Connection", "The name of a connection that may read mail.", check=connection_named, is_first=True
    )

    def __post_init__(self) -> None:
        if not self.connection:
            raise InvalidSettings({"connection": "is required"})
        super().__post_init__()


class AccountMail(Poller[Any]):
    """A mailbox that is read by a connection."""

    group = Group.POLLING
    gaps = GAPS
    needs_secret = False

    def connection_of(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("connection", ""))

    def answer_to(self, event: Event, settings: AccountMailSettings) -> Answer:
        return mail_answer(event, settings)

    def asks_at(self, event: Event, settings: AccountMailSettings) -> Answer:
        return mail_request(event, settings)

    def clean_secret(self, secret: str) -> str:
        raise InvalidSettings({"secret": "is not used: the connection has the tokens"})


@dataclass(frozen=True, kw_only=True)
class News:
    """The ids of messages that have come, the oldest first, and where the next poll goes on. `has_expired`: some may be missing."""

    cursor: Any
    ids: Sequence[str] = ()
    has_more: bool = False
    has_expired: bool = False


class AccountMailReader(PollingReader):
    """Notes which messages have come, and reads some of them in each poll: a message is read once, whatever becomes of it meanwhile. One
    that the provider does not give, while it gives others, is set aside (`unread`)."""

    remedy = "Check that the connection may read mail."

    @abstractmethod
    def begin(self, account: Account, is_all: bool) -> News:
        """Where the first poll begins; with the messages that are there, if all of them are wanted."""

    @abstractmethod
    def news(self, account: Account, cursor: Any) -> News:
        """What has come since the cursor. Raises SourceError."""

    @abstractmethod
    def message(self, account: Account, id: str) -> tuple[bytes, int, Mapping[str, Any]] | None:
        """The message, its whole size, and what else its data has. None: it does not exist any more, or is no mail that has come."""

    def poll(self, state: dict[str, Any]) -> Polled:
        account = Account(self.settings.connection, pause=self.settings.pause, remedy=self.remedy)
        waiting: list[str] = list(state.get("waiting", ()))
        unread = Unread.of(state)
        news = News(cursor=state.get("cursor"))
        if not state:
            news = self.begin(account, self.settings.begin_with == ALL)
        elif not waiting or (unread.head and len(waiting) < MOST_WAITING):  # of what comes, one may be given
            news = self.news(account, state["cursor"])
        waiting += [id for id in dict.fromkeys(news.ids) if id not in waiting]
        messages: list[Received | Poison] = []
        read, failure, keep = 0, None, None
        try:
            found, read, failure = self._read(account, waiting)
            messages += found
            unread.head = None
        except SourceError as error:
            if unread.is_over(waiting[0]) and self._reads_one(account, unread.neighbours(waiting[1:])):
                messages += unread.set_aside(error)
                read = 1
            else:
                unread.note(waiting[0])
                failure = error
        if not failure:
            again, keep = unread.try_again(partial(self._one, account), self.assignment.source_id)
            messages += again
        left = waiting[read:]
        return Polled(
            state={"cursor": news.cursor, "waiting": left, **unread.state},
            messages=messages,
            gaps=[self._gap()] if news.has_expired else [],
            has_more=bool(left) or news.has_more,
            failure=failure,
            keep=keep,
        )

    def _read(self, account: Account, ids: Sequence[str]) -> tuple[list[Received], int, SourceError | None]:
        """Some of the messages, how many of the ids they are, and why there are no more. Raises SourceError if there is none: a provider
        that gives fewer than these before it asks for a pause would else be asked for the same ones for ever."""
        found: list[Received] = []
        size, read = 0, 0
        # A slow server still lets each poll record some.
        until = time.monotonic() + SECONDS / 3
        for id in ids[:MOST_MESSAGES]:
            if found and (size > BATCH_BYTES or time.monotonic() > until):
                break
            try:
                message = self._one(account, id)
            except SourceError as error:
                if not read:
                    raise
                return found, read, error
            read += 1
            if message is not None:
                found.append(message)
                size += len(message.body or b"")
        return found, read, None

    def _one(self, account: Account, id: str) -> Received | None:
        message = self.message(account, id)
        if message is None:
            return None
        raw, whole, more = message
        one = received(raw, whole=whole)
        payload = replace(one.payload, data={**one.payload.data, **more})
        return replace(one, id=event_of(id), payload=payload)

    def _reads_one(self, account: Account, ids: Sequence[str]) -> bool:
        for id in ids:
            try:
                self.message(account, id)
            except SourceError:
                continue
            return True
        return False

    def _gap(self) -> Gap:
        return Gap(stream=self.assignment.slug, reason=Reason.UNKNOWN, detail=EXPIRED, open_for=OPEN_FOR)
