"""Gmail by its API: the history of a mailbox."""

import base64
from collections.abc import Mapping, Sequence
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
from triggers.sources.runner import Assignment, Reader, SourceError

API = "https://gmail.googleapis.com/gmail/v1/users/me"
PAGE, MOST_PAGES = 500, 4
GONE = 404  # a message that was deleted, and a history that has expired
NO_NEWS = frozenset({"DRAFT", "SPAM", "CHAT"})
MOST_RAW = LARGEST * 3 // 2  # bytes of an answer with a message of that size in base64


@register
class Gmail(AccountMail):
    name = "gmail"
    label = "Gmail, by a connection"
    help_text = "Polls a mailbox of Gmail. Each message that has come is an event of type mail.received."
    settings_class = AccountMailSettings
    setup = ("Make a connection to Google that may *Read your mail*, connect it, and enter its name.",)
    docs_url = "https://developers.google.com/workspace/gmail/api/guides/sync"

    def connect(self, assignment: Assignment[AccountMailSettings]) -> Reader:
        return GmailReader(assignment, target=assignment.settings.connection)


class GmailReader(AccountMailReader):
    remedy = "Check that the connection may read your mail, and that its project has the Gmail API."

    def begin(self, account: Account, is_all: bool) -> News:
        # Before the list, so that what comes meanwhile is in one of both.
        _, profile = account.json(f"{API}/profile")
        return News(cursor=str(profile.get("historyId", "")), ids=self._listed(account, "") if is_all else ())

    def news(self, account: Account, cursor: Any) -> News:
        ids: list[str] = []
        asked = {"startHistoryId": cursor, "historyTypes": "messageAdded", "maxResults": str(PAGE)}
        token = ""
        last = cursor
        for _ in range(MOST_PAGES):
            more = {"pageToken": token} if token else {}
            status, page = account.json(f"{API}/history?{urlencode({**asked, **more})}", allowed=(GONE,))
            if status == GONE:
                begun = self.begin(account, is_all=False)
                newer = f"newer_than:{AGAIN.days}d"
                return News(cursor=begun.cursor, ids=self._listed(account, newer), has_expired=True)
            for record in page.get("history") or ():
                last = str(record.get("id", last))
                ids += [one["message"]["id"] for one in record.get("messagesAdded") or () if _has_come(one["message"])]
            token = page.get("nextPageToken", "")
            if not token:
                return News(cursor=str(page.get("historyId", last)), ids=ids)
        return News(cursor=last, ids=ids, has_more=True)

    def message(self, account: Account, id: str) -> tuple[bytes, int, Mapping[str, Any]] | None:
        url = f"{API}/messages/{quote(id, safe='')}"
        try:
            status, found = account.json(url, {"format": "raw"}, allowed=(GONE,), most_bytes=MOST_RAW)
        except TooLarge:
            status, found = account.json(url, {"format": "metadata"}, allowed=(GONE,))
        if status == GONE or not _has_come(found):
            return None
        raw = _raw(found)
        whole = int(found.get("sizeEstimate") or 0) if "raw" not in found else len(raw)
        kept = raw if len(raw) <= LARGEST else raw[:BEGINNING]
        return kept, max(whole, len(raw)), {"labels": [str(one) for one in found.get("labelIds") or ()][:100]}

    def _listed(self, account: Account, query: str) -> Sequence[str]:
        """The newest messages, the oldest first."""
        ids: list[str] = []
        token = ""
        while len(ids) < MOST_WAITING:
            asked = {"maxResults": str(PAGE), "q": query, "pageToken": token}
            _, page = account.json(
                f"{API}/messages?{urlencode({name: value for name, value in asked.items() if value})}"
            )
            ids += [str(one["id"]) for one in page.get("messages") or ()]
            token = page.get("nextPageToken", "")
            if not token:
                break
        return ids[MOST_WAITING - 1 :: -1] if len(ids) > MOST_WAITING else ids[::-1]


def _has_come(message: Mapping[str, Any]) -> bool:
    labels = set(message.get("labelIds") or ())
    return not labels & NO_NEWS and ("SENT" not in labels or "INBOX" in labels)


def _raw(found: Mapping[str, Any]) -> bytes:
    """The message; of one that is too large, its header."""
    if "raw" in found:
        text = str(found["raw"])
        try:
            return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except ValueError:
            raise SourceError("The provider's answer has no message.") from None
    headers = (found.get("payload") or {}).get("headers") or ()
    lines = [f"{one.get('name')}: {' '.join(str(one.get('value', '')).split())}" for one in headers]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "replace")
