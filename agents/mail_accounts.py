"""The mail of an account that people have connected as `mail`: label the message that woke a run, and draft an answer to it. Nothing
here sends.

The message is found by its Message-ID, and taken only if its sender is that of the event: the sender of an event chooses neither another
message nor the recipients of an answer.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import getaddresses
from typing import Any, Protocol
from urllib.parse import quote

import httpx2 as httpx

from agents.connections import client
from agents.exceptions import Retry
from agents.guards.http import is_allowed
from agents.run import AgentRun

CONNECTION = "mail"
GMAIL = "https://gmail.googleapis.com/gmail/v1/users/me"
GRAPH = "https://graph.microsoft.com/v1.0/me"
FOLDER = "Wakeful/"  # before each label: no label of people, to which they may have tied a rule, is set
LABEL = re.compile(r"\w[\w &.-]{0,39}")
MOST_LABELS = 100  # below the folder
MOST_RECIPIENTS = 10
MOST_COPIES = 5  # of the message, that are looked at
LONGEST = 10_000  # characters of a draft
LONGEST_SUBJECT = 200
LONGEST_REFERENCES = 900
MESSAGE_ID = re.compile(r"<[^<>\s\x00-\x1f\x7f]{1,900}>")
ADDRESS = re.compile(r"[^@\s<>,;:\"()\[\]\\]{1,64}@[^@\s<>,;:\"()\[\]\\]{1,255}", re.ASCII)
CHANGED = 412  # the message is another than the one that was read
TRIES = 3
PAUSE = 60  # seconds, without Retry-After
LONGEST_PAUSE = 3600
IMMUTABLE = {"Prefer": 'IdType="ImmutableId"'}


class MailRefused(ValueError):
    """Nothing was done: the provider refuses it, or the message is none that may be labelled or answered."""


@dataclass(frozen=True, kw_only=True)
class Mail:
    """The message that woke a run, as its event describes it."""

    message_id: str
    sender: str
    subject: str
    references: Sequence[str]
    is_automatic: bool

    @classmethod
    def of_data(cls, given: Any) -> "Mail":
        """MailRefused: this is no data of a message that can be found."""
        data = given if isinstance(given, dict) else {}
        sender = data.get("from")
        if not MESSAGE_ID.fullmatch(str(data.get("message_id"))) or not isinstance(sender, dict):
            raise MailRefused("this run was not woken by a message that has a Message-ID")
        references = data.get("references")
        known = (
            [str(one) for one in references if MESSAGE_ID.fullmatch(str(one))] if isinstance(references, list) else []
        )
        return cls(
            message_id=data["message_id"],
            sender=str(sender.get("address", "")).lower(),
            subject=" ".join(str(data.get("subject") or "").split())[:LONGEST_SUBJECT],
            references=known,
            is_automatic=bool(data.get("is_automatic") or data.get("list_id")),
        )


@dataclass(frozen=True, kw_only=True)
class Found:
    """The message at its provider. An answer goes to these addresses."""

    id: str
    thread: str
    answer_to: Sequence[str]
    categories: Sequence[str] = ()
    version: str = ""


class MailAccount(Protocol):
    def find(self, mail: Mail) -> Found:
        """MailRefused: the account does not have it, or has several."""

    def label(self, found: Found, labels: Sequence[str]) -> bool:
        """Add the labels. False: the message was changed meanwhile, and has to be found again."""

    def draft(self, found: Found, mail: Mail, text: str) -> None:
        """Save an answer to it as a draft in its thread."""


def label_message(run: AgentRun, labels: Sequence[str]) -> None:
    """Add labels to the message that woke the run. A repetition changes nothing. MailRefused: none was added."""
    if wrong := [label for label in labels if not LABEL.fullmatch(label)]:
        raise MailRefused(f"no label: {wrong[0][:50]!r}; it has 1 to 40 letters, digits, spaces, &, . and -")
    mail = Mail.of_data(run.event.data)
    # A stranger gains nothing by a label that is Wakeful's own.
    with _opened(run, harmless=True) as account:
        for _ in range(TRIES):
            if account.label(account.find(mail), [f"{FOLDER}{label}" for label in labels]):
                return
    raise Retry("the message is being changed at its provider")


def draft_answer(run: AgentRun, text: str) -> list[str]:
    """Save an answer to the message that woke the run as a draft; returns its recipients. MailRefused, Retry: there is no draft."""
    if not text.strip() or len(text) > LONGEST:
        raise MailRefused(f"an answer has 1 to {LONGEST:,} characters")
    mail = Mail.of_data(run.event.data)
    if mail.is_automatic:
        raise MailRefused("a program or a list has sent the message: it gets no answer")
    with _opened(run, harmless=False) as account:
        found = account.find(mail)
        if not 0 < len(found.answer_to) <= MOST_RECIPIENTS:
            raise MailRefused(
                f"the message names {len(found.answer_to)} addresses to answer to; 1 to {MOST_RECIPIENTS} get a draft"
            )
        account.draft(found, mail, text)
    return list(found.answer_to)


@contextmanager
def _opened(run: AgentRun, *, harmless: bool) -> Iterator[MailAccount]:
    use = run.use_of_connection(CONNECTION, trusted=False, harmless=harmless)
    with client(use) as http:
        hosts = use.lease().hosts
        if is_allowed(httpx.URL(GMAIL), hosts):
            yield GmailAccount(http)
        elif is_allowed(httpx.URL(GRAPH), hosts):
            yield MicrosoftAccount(http)
        else:
            raise MailRefused(f"connection {CONNECTION!r} is one to neither Google nor Microsoft 365")


@dataclass(frozen=True)
class GmailAccount:
    http: httpx.Client

    def find(self, mail: Mail) -> Found:
        asked = {
            "q": f"rfc822msgid:{mail.message_id[1:-1]}",
            "includeSpamTrash": "true",
            "maxResults": str(MOST_COPIES),
        }
        listed = _answer(self.http.get(f"{GMAIL}/messages", params=asked)).get("messages") or ()
        wanted = {"format": "metadata", "metadataHeaders": ["Message-ID", "From", "Reply-To"]}
        there = [
            _answer(self.http.get(f"{GMAIL}/messages/{quote(one['id'], safe='')}", params=wanted)) for one in listed
        ]
        return _the_one([found for one in there if (found := self._found(one, mail))])

    def _found(self, one: Mapping[str, Any], mail: Mail) -> Found | None:
        headers = {str(each["name"]).lower(): str(each["value"]) for each in one["payload"].get("headers") or ()}
        senders = _addresses(headers.get("from", ""))
        if headers.get("message-id", "").strip() != mail.message_id or mail.sender not in senders:
            return None
        elsewhere = headers.get("reply-to", "").strip()
        return Found(id=one["id"], thread=one["threadId"], answer_to=_addresses(elsewhere) if elsewhere else senders)

    def label(self, found: Found, labels: Sequence[str]) -> bool:
        there = self._labels()
        if len(there.keys() | set(labels)) > MOST_LABELS:
            raise MailRefused(
                f"there are {len(there)} labels below {FOLDER}, and at most {MOST_LABELS}: use one of them"
            )
        ids = [there.get(label) or self._made(label) for label in labels]
        _answer(self.http.post(f"{GMAIL}/messages/{quote(found.id, safe='')}/modify", json={"addLabelIds": ids}))
        return True

    def draft(self, found: Found, mail: Mail, text: str) -> None:
        raw = base64.urlsafe_b64encode(answer_to(mail, found.answer_to, text)).decode()
        _answer(self.http.post(f"{GMAIL}/drafts", json={"message": {"threadId": found.thread, "raw": raw}}))

    def _labels(self) -> dict[str, str]:
        there = _answer(self.http.get(f"{GMAIL}/labels")).get("labels") or ()
        return {str(one["name"]): str(one["id"]) for one in there if str(one["name"]).startswith(FOLDER)}

    def _made(self, label: str) -> str:
        shown = {"labelListVisibility": "labelShow", "messageListVisibility": "show"}
        response = self.http.post(f"{GMAIL}/labels", json={"name": label, **shown})
        if response.status_code == httpx.codes.CONFLICT and (id := self._labels().get(label)):
            return id  # another run made it
        return str(_answer(response)["id"])


@dataclass(frozen=True)
class MicrosoftAccount:
    http: httpx.Client

    def find(self, mail: Mail) -> Found:
        asked = {
            "$filter": "internetMessageId eq '{}'".format(mail.message_id.replace("'", "''")),
            "$select": "internetMessageId,from,replyTo,categories,isDraft,conversationId",
            "$top": str(MOST_COPIES),
        }
        listed = _answer(self.http.get(f"{GRAPH}/messages", params=asked, headers=IMMUTABLE)).get("value") or ()
        return _the_one([found for one in listed if (found := self._found(one, mail))])

    def _found(self, one: Mapping[str, Any], mail: Mail) -> Found | None:
        senders = _people([one.get("from") or {}])
        if one.get("isDraft") or one.get("internetMessageId") != mail.message_id or mail.sender not in senders:
            return None
        return Found(
            id=one["id"],
            thread=str(one.get("conversationId", "")),
            answer_to=_people(one["replyTo"]) if one.get("replyTo") else senders,
            categories=[str(each) for each in one.get("categories") or ()],
            version=str(one.get("@odata.etag", "")),
        )

    def label(self, found: Found, labels: Sequence[str]) -> bool:
        added = [label for label in labels if label not in found.categories]
        if not added:
            return True
        # The whole list is written: only over the one that was read.
        headers = {**IMMUTABLE, **({"If-Match": found.version} if found.version else {})}
        response = self.http.patch(
            self._address(found), json={"categories": [*found.categories, *added]}, headers=headers
        )
        if response.status_code == CHANGED:
            return False
        _answer(response)
        return True

    def draft(self, found: Found, mail: Mail, text: str) -> None:
        _answer(self.http.post(f"{self._address(found)}/createReply", json={"comment": text}, headers=IMMUTABLE))

    def _address(self, found: Found) -> str:
        return f"{GRAPH}/messages/{quote(found.id, safe='')}"


def answer_to(mail: Mail, recipients: Sequence[str], text: str) -> bytes:
    """An answer as a message (RFC 5322), whose header fields lead its readers to the thread."""
    answer = EmailMessage(policy=SMTP)
    answer["To"] = ", ".join(recipients)
    answer["Subject"] = mail.subject if mail.subject.lower().startswith("re:") else f"Re: {mail.subject}"
    answer["In-Reply-To"] = mail.message_id
    known = [one for one in mail.references if one != mail.message_id]
    kept = [mail.message_id]
    for one in reversed(known):
        if sum(map(len, kept)) + len(one) + len(kept) > LONGEST_REFERENCES:
            break
        kept.insert(0, one)
    answer["References"] = " ".join(kept)
    answer.set_content(text, cte="base64")
    return answer.as_bytes(policy=SMTP.clone(max_line_length=0))  # a folded id would be encoded, and no id any more


def _the_one(found: Sequence[Found]) -> Found:
    if not found:
        raise MailRefused(
            f"the account of connection {CONNECTION!r} has no such message of this sender; is it of another mailbox?"
        )
    # Who writes to themselves has it twice. Copies that would be answered differently may be a forgery of a Message-ID.
    if len({(one.thread, *one.answer_to) for one in found}) > 1:
        raise MailRefused("the account has several messages with this Message-ID and sender")
    return found[0]


def _addresses(header: str) -> list[str]:
    """The addresses of a header field, each once. A field with one that is unreadable has none."""
    named = [address.lower() for _, address in getaddresses([header[:2_000]])]
    return list(dict.fromkeys(named)) if all(map(ADDRESS.fullmatch, named)) else []


def _people(people: Sequence[Mapping[str, Any]]) -> list[str]:
    named = [str((one.get("emailAddress") or {}).get("address", "")).lower() for one in people]
    return list(dict.fromkeys(named)) if all(map(ADDRESS.fullmatch, named)) else []


def _answer(response: httpx.Response) -> dict[str, Any]:
    """What a provider has answered. MailRefused, Retry: it did nothing. An error of httpx: it may have."""
    status = response.status_code
    if status == httpx.codes.TOO_MANY_REQUESTS or (
        status == httpx.codes.FORBIDDEN and "ateLimitExceeded" in response.text
    ):
        told = response.headers.get("Retry-After", "")
        raise Retry("the provider asks for a pause", after=min(int(told), LONGEST_PAUSE) if told.isdecimal() else PAUSE)
    if httpx.codes.is_client_error(status):
        raise MailRefused(f"the provider answers {status}; may connection {CONNECTION!r} read, label and draft mail?")
    found = response.raise_for_status().json() if response.content else {}
    return found if isinstance(found, dict) else {}
