import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from typing import Any

import httpx2 as httpx

from agents.guards.http import is_allowed, is_private
from triggers.models import Event
from triggers.sources.continuity import Gaps
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Group, register
from triggers.sources.mail import read_mail
from triggers.sources.polling import imap_client
from triggers.sources.polling.by_connection import connection_named, leased
from triggers.sources.polling.imap_client import Client, Mailbox, Server
from triggers.sources.polling.mail_replies import MailReplySettings, is_plain_address, mail_answer, mail_request
from triggers.sources.polling.poller import ALL, SECONDS, Polled, Poller, PollingReader
from triggers.sources.polling.unread import Unread
from triggers.sources.replies import Answer
from triggers.sources.runner import BATCH_BYTES, Assignment, Batch, Poison, Reader, Received, SourceError
from triggers.sources.settings import InvalidSettings, setting, whole_number
from triggers.sources.webhooks.naming import is_name

TYPE = "mail.received"
MOST_MESSAGES = 100  # of a poll
LARGEST = 10 * 2**20  # bytes of a message that is kept as a whole
BEGINNING = 2**18  # bytes of a larger one that are kept
MOST_BYTES = 2 * BATCH_BYTES + LARGEST  # of a session
REBUILT = timedelta(days=7)  # how far back to look for mail in a mailbox that was made again
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def named(value: str) -> str:
    return "" if value.strip() and value.isprintable() else "is required"


def ascii_named(value: str) -> str:
    return named(value) or ("" if value.isascii() else "must be ASCII")


@dataclass(frozen=True, kw_only=True)
class MailboxSettings(MailReplySettings):
    """Which mailbox to read, where."""

    host: str = setting("", "Server", "Such as imap.example.org.", check=ascii_named, secret_goes_to=str)
    port: int = setting(993, "Port", "993 with TLS, 143 else.", check=whole_number(1, 65_535), secret_goes_to=int)
    tls: str = setting(
        "tls",
        "Encryption",
        "“tls” from the first byte; “starttls”; or “none”, which shows the password to everyone on the way.",
        choices=("tls", "starttls", "none"),
        secret_goes_to=str,
    )
    user: str = setting("", "User", "Often the address of the mailbox.", check=named, secret_goes_to=str)
    connection: str = setting(
        "",
        "Connection",
        "Sign in by this connection (OAuth), such as gmail, instead of a password. The server must be one of its provider's.",
        check=connection_named,
    )
    mailbox: str = setting(
        "INBOX", "Mailbox", "Its name at the server; other characters than ASCII in modified UTF-7.", check=ascii_named
    )
    mark_read: bool = setting(
        False, "Mark as read", "Mark messages as read after their events are recorded. Otherwise nothing is changed."
    )

    def __post_init__(self) -> None:
        if missing := {name: named(getattr(self, name)) for name in ("host", "user") if not getattr(self, name)}:
            raise InvalidSettings(missing)
        super().__post_init__()

    @property
    def own_address(self) -> str:
        user = self.user.lower()
        return super().own_address or (user if is_plain_address(user) else "")


@register
class ImapMailbox(Poller[MailboxSettings]):
    name = "imap"
    label = "IMAP mailbox"
    help_text = f"Polls a mailbox. Each new message is an event of type {TYPE}."
    group = Group.POLLING
    settings_class = MailboxSettings
    in_sight = ("host", "user", "connection", "mailbox")
    secret_label = "Password"  # noqa: S105  (a label)
    gaps = Gaps(
        are_seen=False,
        how="a message that is moved or deleted between two looks leaves no trace.",
    )
    setup = (
        "Switch IMAP on for the mailbox, if the provider asks for it.",
        "Gmail and Microsoft 365: make a connection that may read all mail by IMAP, and enter its name. Leave the secret empty.",
        "Others: create an app password, as most providers accept no other one over IMAP, and enter it as the secret.",
        "Use a mailbox of its own for agents, or a folder that a rule of the provider fills: its readers see what agents see.",
    )
    docs_url = "https://www.rfc-editor.org/rfc/rfc9051"

    def connection_of(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("connection", ""))

    def answer_to(self, event: Event, settings: MailboxSettings) -> Answer:
        return mail_answer(event, settings)

    def asks_at(self, event: Event, settings: MailboxSettings) -> Answer:
        return mail_request(event, settings)

    def connect(self, assignment: Assignment[MailboxSettings]) -> Reader:
        settings = assignment.settings
        return MailboxReader(assignment, target=f"{settings.host} {settings.user} {settings.mailbox}")


class MailboxReader(PollingReader):
    """Reads the messages above the last UID. A message that the server does not give, while it gives others, is set aside (`unread`). The
    connection lasts for one poll and its confirmation."""

    client: Client | None = None
    until = 0.0  # monotonic seconds: the end of the poll

    def poll(self, state: dict[str, Any]) -> Polled:
        self.until = time.monotonic() + SECONDS
        try:
            return self._poll(state)
        except (Client.error, OSError) as error:
            raise _not_read(error) from None

    def confirm(self, batch: Batch) -> None:
        super().confirm(batch)
        if self.client and batch.receipt:
            with suppress(Client.error, OSError):  # the events are recorded; a mark that is missing does no harm
                imap_client.mark_read(self.client, batch.receipt)
        self.close()

    def close(self) -> None:
        if self.client:
            with suppress(Client.error, OSError):
                self.client.logout()
            self.client.shutdown()
            self.client = None

    def _poll(self, state: dict[str, Any]) -> Polled:
        settings = self.settings
        client, mailbox = self._opened()
        if not state and settings.begin_with != ALL:
            return Polled(state={"validity": mailbox.validity, "uid": mailbox.next_uid - 1})
        last, unread = state.get("uid", 0), Unread.of(state)
        messages: list[Received | Poison] = []
        if state and state["validity"] != mailbox.validity:
            # All messages have other UIDs. Those that were recorded are known by their content.
            last, criteria = 0, ("SINCE", imap_date((datetime.now(UTC) - REBUILT).date()))
            messages += unread.give_up([one["id"] for one in unread.aside], "the mailbox was made again")
            unread.head = None
        else:
            criteria = ("UID", f"{last + 1}:*")
        uids = [uid for uid in imap_client.search(client, *criteria) if uid > last]
        # Also where none of these is read, older mail of a mailbox that was made again stays behind.
        last = uids[0] - 1 if uids else max(last, mailbox.next_uid - 1)
        name = f"{mailbox.validity}/{uids[0]}" if uids else ""
        is_over = unread.is_over(name)
        if is_over:
            client.until -= SECONDS / 2  # which are left for those behind it, if it takes all of the time
        found: list[Received] = []
        read, failure = 0, None
        try:
            found, read = self._read(client, uids, is_careful=unread.head is not None)
            unread.head = None
        except SourceError as error:
            if is_over and self._reads_one(unread.neighbours(uids[1:])):
                messages += unread.set_aside(error)
                read = 1
            else:
                unread.note(name)
                failure = error
        marked = list(uids[:read]) if found else []

        def read_again(name: str) -> Received | None:
            uid = int(name.partition("/")[2])
            message = self._alone(uid)
            marked.append(uid)
            return message

        again, keep = ([], None) if failure else unread.try_again(read_again, self.assignment.source_id)
        return Polled(
            state={"validity": mailbox.validity, "uid": uids[read - 1] if read else last, **unread.state},
            messages=[*messages, *found, *again],
            has_more=read < len(uids),
            receipt=marked if settings.mark_read else [],
            keep=keep,
            failure=failure,
        )

    def _opened(self) -> tuple[Client, Mailbox]:
        client = self._signed_in()
        return client, imap_client.select(client, self.settings.mailbox, writable=self.settings.mark_read)

    def _signed_in(self) -> Client:
        settings = self.settings
        if not settings.connection:
            client = self._connected()
            imap_client.sign_in(client, settings.user, self.assignment.secret)
            return client
        token = ""
        for _ in range(2):  # a token that the server refuses is renewed once
            token = self._token(refused=token)
            client = self._connected()
            if imap_client.sign_in_by_token(client, settings.user, token):
                return client
        raise SourceError(
            f"The server refuses the token of connection {settings.connection} for {settings.user}.",
            remedy="Check that the connection belongs to this user, and that it may read all mail by IMAP.",
        )

    def _connected(self) -> Client:
        settings = self.settings
        self.close()
        server = Server(host=settings.host, port=settings.port, tls=settings.tls)
        self.client = Client(server, seconds=self.until - time.monotonic(), most_bytes=MOST_BYTES)
        return self.client

    def _token(self, *, refused: str) -> str:
        """Only for a server of the provider, so that who edits sources cannot have it sent elsewhere."""
        settings = self.settings
        given = leased(settings.connection, refused=refused)
        address = httpx.URL(
            scheme="http" if settings.tls == "none" else "https", host=settings.host, port=settings.port
        )
        if not is_allowed(address, given.hosts) or not is_private(address):
            raise SourceError(
                f"Connection {settings.connection} sends its token to {', '.join(given.hosts)} only, with TLS.",
                remedy="Enter the server of its provider and its port, such as imap.gmail.com and 993.",
            )
        return given.token

    def _read(self, client: Client, uids: Sequence[int], *, is_careful: bool) -> tuple[list[Received], int]:
        """Some of the messages, and how many of the UIDs they are. SourceError: the server does not give the first one. `is_careful`: it
        did not give one in the last poll either, so each request names one message."""
        some = uids[:MOST_MESSAGES]
        found: list[Received] = []
        read, size = 0, 0
        sizes: dict[int, int] = {}
        # A slow server, and messages that are made to cost time, still let each poll record some.
        until = time.monotonic() + SECONDS / 3
        for uid in some:
            try:
                if is_careful or not read:
                    sizes = imap_client.sizes(client, [uid] if is_careful else some)
                is_large = sizes.get(uid, 0) > LARGEST
                is_full = size + (BEGINNING if is_large else sizes.get(uid, 0)) > BATCH_BYTES
                if found and (is_full or time.monotonic() > until):
                    break
                message = self._message(client, uid, sizes)
            except (Client.error, OSError) as error:
                if read:
                    break  # the next poll begins with it
                raise _not_read(error) from None
            read += 1
            if message is not None:
                found.append(message)
                size += len(message.body or b"")
        return found, read

    def _message(self, client: Client, uid: int, sizes: Mapping[int, int]) -> Received | None:
        """None: it does not exist any more."""
        if uid not in sizes:
            _require_gone(client, uid)
            return None
        # The size is a guess of some servers, such as Exchange.
        most = BEGINNING if sizes[uid] > LARGEST else LARGEST
        raw = imap_client.fetch(client, uid, most)
        if raw is None:
            _require_gone(client, uid)
            return None
        return received(raw, whole=sizes[uid] if len(raw) >= most else len(raw))

    def _reads_one(self, uids: Sequence[int]) -> bool:
        for uid in uids:
            with suppress(SourceError):
                self._alone(uid)
                return True
        return False

    def _alone(self, uid: int) -> Received | None:
        """The message, in a session of its own: an error may have ended the last one. Raises SourceError."""
        try:
            client, _ = self._opened()
            return self._message(client, uid, imap_client.sizes(client, [uid]))
        except (Client.error, OSError) as error:
            raise _not_read(error) from None


def _require_gone(client: Client, uid: int) -> None:
    """Raises an error of the client if the message that an answer leaves out still exists."""
    if uid in imap_client.search(client, "UID", str(uid)):
        raise client.error("FETCH: OK, without the message")


def _not_read(error: Exception) -> SourceError:
    if isinstance(error, TimeoutError):
        return SourceError("The server does not answer in time.")
    return SourceError(f"The mailbox cannot be read: {error}")


def received(raw: bytes, *, whole: int) -> Received:
    """A message as an event. Its content identifies it: a sender could take the Message-ID of another one."""
    mail = read_mail(raw)
    data = {**mail.data, "size": max(whole, len(raw))}
    if whole > LARGEST or len(raw) >= LARGEST:
        data["defects"] = [*data["defects"], f"larger than {LARGEST:,} bytes: only its beginning is kept"]
    return Received(
        id=f"sha256:{sha256(raw).hexdigest()}",
        type=TYPE,
        subject=mail.sender if is_name(mail.sender) else "",
        time=mail.sent_at,
        payload=Payload(data=data),
        body=raw,
    )


def imap_date(day: date) -> str:
    return f"{day.day}-{MONTHS[day.month - 1]}-{day.year}"
