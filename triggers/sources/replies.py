"""Replies to the events of a source: who may be answered, by what account. An operator decides both; the event only selects which of the
threads at that provider it belongs to."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from runs.network.outgoing import what_is_wrong_with
from triggers.sources.settings import InvalidSettings, setting

if TYPE_CHECKING:
    from triggers.models import Event

NO, ASK, YES = "no", "ask", "yes"
CONNECTION = re.compile(r"[a-z0-9_-]{1,100}")


class Unanswerable(Exception):
    """The event has no place to answer; the message gives the reason and the way out."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A place, as the kind of a source derives it (`agents.kernel.reply_place`); `thread` is unique within the source."""

    kind: str
    to: Mapping[str, Any]
    name: str
    thread: str
    asks: bool = True


def reply_setting() -> str:
    return setting(
        NO,
        "Reply",
        "May agents answer in the thread of the message that woke them? “ask”: what a model wants to answer, after it has seen data of "
        "strangers, is approved by a person first; “yes”: it is sent at once.",
        choices=(NO, ASK, YES),
    )


def approvals_setting() -> str:
    return setting(
        NO,
        "Approvals",
        "“yes”: requests for approval and questions of the runs that a message wakes are posted where it came from. Everyone there reads "
        "them with their arguments, and people who have linked their account decide by buttons.",
        choices=(NO, YES),
    )


class ByAccount(Protocol):
    """Settings of a source whose messages are answered by the account of a connection."""

    @property
    def reply(self) -> str: ...
    @property
    def reply_connection(self) -> str: ...
    @property
    def reply_api(self) -> str: ...


def answer_by_account(settings: ByAccount, *, kind: str, name: str, thread: str, **to: str) -> Answer:
    """In a thread of the provider, with the token of the connection that the source names."""
    account = {
        "host": host_of(settings.reply_api),
        "api": settings.reply_api,
        "connection": settings.reply_connection,
    }
    return Answer(kind=kind, to={**account, **to}, name=name, thread=thread, asks=settings.reply != YES)


def url_setting() -> str:
    return setting(
        "",
        "Address for replies",
        "Where agents answer: a POST, signed as Standard Webhooks with the secret of this source. No address in an event is ever called.",
        check=lambda value: what_is_wrong_with(value) if value else "",
    )


def answer_at(event: "Event", url: str) -> Answer:
    """At the address that the source declares. Raises Unanswerable."""
    if not url:
        raise Unanswerable(
            "its setting “Address for replies” is empty: enter the address of the sender that takes them"
        )
    to = {
        "host": host_of(url),
        "url": url,
        "source": str(event.source_id),
        "event": str(event.pk),
        "event_id": event.ce_id,
    }
    # The operator has chosen the address: no stranger reads there.
    return Answer(kind="webhook-reply", to=to, name=f"replies at {host_of(url)}", thread=event.ce_id, asks=False)


def connection_named(value: str) -> str:
    return "" if not value or CONNECTION.fullmatch(value) else "must be the name of a connection, or empty"


def is_api(value: str) -> str:
    """Why this is no address of an API."""
    if wrong := what_is_wrong_with(value):
        return wrong
    parts = urlsplit(value)
    plain = value.endswith("/") and not (parts.query or parts.fragment or parts.username)
    return "" if plain else "must be a plain address that ends in a slash"


def api_setting(default: str, label: str) -> str:
    return setting(default, label, "Another address only for a server of your own.", check=is_api)


def require_reply(reply: str, connection: str) -> None:
    """Raises InvalidSettings: replies are switched on, and no account is named."""
    if reply != NO and not connection:
        raise InvalidSettings({"reply_connection": "name the connection that replies are posted by"})


def require_approvals(approvals: str) -> None:
    """Raises Unanswerable."""
    if approvals != YES:
        raise Unanswerable("its setting “Approvals” is “no”: set it to “yes” in the form of the source")


def require_on(reply: str) -> None:
    """Raises Unanswerable."""
    if reply == NO:
        raise Unanswerable("its setting “Reply” is “no”: set it to “ask” or “yes” in the form of the source")


def host_of(url: str) -> str:
    """The host that is away together with all other places on it."""
    return urlsplit(url).netloc.rpartition("@")[2]
