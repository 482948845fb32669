"""Mail of Microsoft 365 by Graph: the delta of a folder."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode

from triggers.sources.kind import register
from triggers.sources.polling.account_mail import (
    AGAIN,
    MOST_WAITING,
    AccountMail,
    AccountMailReader,
    AccountMailSettings,
    News,
)
from triggers.sources.polling.by_connection import Account, TooLarge
from triggers.sources.polling.mailbox import BEGINNING, LARGEST
from triggers.sources.runner import Assignment, Reader
from triggers.sources.settings import setting

API = "https://graph.microsoft.com/v1.0/me"
PAGE, MOST_PAGES = 100, 20
GONE = 404  # a message that was deleted
EXPIRED = (404, 410)  # a delta link
# An id that a message keeps when it is moved.
PREFER = {"Prefer": f'IdType="ImmutableId", odata.maxpagesize={PAGE}'}


class Expired(Exception):
    """The provider has forgotten what the link stands for."""


@dataclass(frozen=True, kw_only=True)
class FolderSettings(AccountMailSettings):
    """Which folder."""

    folder: str = setting("inbox", "Folder", "Its id at Graph, or a name such as inbox or archive.")


@register
class MicrosoftMail(AccountMail):
    name = "microsoft_mail"
    label = "Microsoft 365 mail, by a connection"
    help_text = "Polls a folder of a mailbox. Each message that has come is an event of type mail.received."
    settings_class = FolderSettings
    setup = (
        "Make a connection to Microsoft 365 that may *Read your mail* (by Graph, not by IMAP), connect it, and enter its name.",
    )
    docs_url = "https://learn.microsoft.com/graph/delta-query-messages"

    def connect(self, assignment: Assignment[FolderSettings]) -> Reader:
        settings = assignment.settings
        return MicrosoftMailReader(assignment, target=f"{settings.connection} {settings.folder}")


class MicrosoftMailReader(AccountMailReader):
    remedy = "Check that the connection is one for Graph that may read mail, and the folder."

    def begin(self, account: Account, is_all: bool) -> News:
        since = datetime(1970, 1, 1, tzinfo=UTC) if is_all else datetime.now(UTC)
        return self._followed(account, self._address(since))

    def news(self, account: Account, cursor: Any) -> News:
        try:
            return self._followed(account, cursor, allowed=EXPIRED)
        except Expired:
            return replace(self._followed(account, self._address(datetime.now(UTC) - AGAIN)), has_expired=True)

    def message(self, account: Account, id: str) -> tuple[bytes, int, Mapping[str, Any]] | None:
        url = f"{API}/messages/{quote(id, safe='')}"
        try:
            answer = account.ask(f"{url}/$value", headers=PREFER, allowed=(GONE,), most_bytes=LARGEST * 3 // 2)
        except TooLarge:
            return self._header_of(account, url)
        if answer.status == GONE:
            return None
        raw = answer.body
        return (raw if len(raw) <= LARGEST else raw[:BEGINNING]), len(raw), {}

    def _header_of(self, account: Account, url: str) -> tuple[bytes, int, Mapping[str, Any]] | None:
        asked = {"$select": "internetMessageHeaders"}
        status, found = account.json(url, asked, headers=PREFER, allowed=(GONE,))
        if status == GONE:
            return None
        headers = found.get("internetMessageHeaders") or ()
        lines = [f"{one.get('name')}: {' '.join(str(one.get('value', '')).split())}" for one in headers]
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace"), LARGEST * 3 // 2 + 1, {}

    def _address(self, since: datetime) -> str:
        asked = {
            "changeType": "created",
            "$select": "receivedDateTime,isDraft",
            "$filter": f"receivedDateTime ge {since:%Y-%m-%dT%H:%M:%SZ}",
        }
        return f"{API}/mailFolders/{quote(self.settings.folder or 'inbox', safe='')}/messages/delta?{urlencode(asked)}"

    def _followed(self, account: Account, first: str, *, allowed: Collection[int] = ()) -> News:
        """What the pages from this address on have. The link of a page goes on, too. Raises Expired for an answer that is allowed."""
        found: list[tuple[str, str]] = []
        url = first
        for _ in range(MOST_PAGES):
            status, page = account.json(url, headers=PREFER, allowed=allowed)
            if status in allowed:
                raise Expired
            found += [
                (str(one.get("receivedDateTime", "")), str(one["id"]))
                for one in page.get("value") or ()
                if "@removed" not in one and not one.get("isDraft")
            ]
            url = str(page.get("@odata.nextLink") or "")
            if not url:
                return News(cursor=str(page.get("@odata.deltaLink") or ""), ids=_oldest_first(found))
            if len(found) >= MOST_WAITING:
                break
        return News(cursor=url, ids=_oldest_first(found), has_more=True)


def _oldest_first(found: Sequence[tuple[str, str]]) -> Sequence[str]:
    return [id for _, id in sorted(found)]
