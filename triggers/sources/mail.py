"""Read mail (RFC 5322) as the data of an event: people, thread, text, attachments.

Mail is written by strangers. Every step is bounded by the constants below, and nothing raises: what cannot be read is left out and
named in `defects`. A sender's address can be forged: `authentication_results` has what the mail servers on the way found out.

The names, types, sizes and digests of attachments are in the data, and so is the content of small ones. The whole message is kept as
the body of the event, where retention and erasure remove it with the rest of the payload; `attachments_in` reads larger ones there.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.errors import MessageError
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import EmailPolicy
from functools import partial
from typing import Any, TypeVar

from agents.guards.foreign_text import known_charset, storable_text
from triggers.sources.html_text import html_to_text

T = TypeVar("T")

MOST_LINES = 400_000  # of a message, more than 25 MB in base64 have; the rest is not read
LONGEST_HEADER = 16_384  # characters of one header field
# Parsing addresses is quadratic, and so is parsing parameters, among which a name of 255 characters fits in, even if it is encoded.
LONGEST_OF = {"from": 2_000, "sender": 2_000, "reply-to": 2_000, "to": 8_192, "cc": 8_192}
LONGEST_PARAMETERS = 2_000
DEEPEST = 20  # levels of multipart; what is deeper becomes one attachment
MOST_PARTS = 100
MOST_PEOPLE = 200  # addresses of one header field
MOST_REFERENCES = 50
MOST_TEXT = 200_000  # characters
MOST_HTML = 500_000  # characters that are converted
MOST_ATTACHMENTS = 50
LARGEST_CONTENT = 65_536  # bytes of an attachment whose content is in the data
MOST_CONTENT = 262_144  # bytes of all those of one message
LONGEST_NAME = 255

MESSAGE_ID = re.compile(r"<[^<>\s]{1,900}>")
UNSAFE_IN_NAME = re.compile(r"[\x00-\x1f\x7f/\\]")
AUTOMATIC = frozenset({"bulk", "junk", "list", "auto_reply"})


@dataclass(frozen=True, kw_only=True)
class Mail:
    """A message: its identity, the address of its sender, and the data of its event."""

    message_id: str  # the sender's, or a digest of the message if it has none
    thread_id: str
    sender: str
    sent_at: datetime | None
    data: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A file in a message, decoded."""

    name: str
    type: str
    content: bytes
    is_inline: bool = False


class _TooManyParts(Exception):
    """The message has more than MOST_PARTS parts."""


class _Part(EmailMessage):
    """A part of a message, as the parser makes them. It knows how deep it is and how many parts there are."""

    depth = 0

    def __init__(self, policy: Any = None) -> None:
        super().__init__(policy)
        self.count = [1]  # shared by all parts of a message
        self.parsed: dict[str, Any] = {}

    def attach(self, part: Any) -> None:
        part.depth, part.count = self.depth + 1, self.count
        self.count[0] += 1
        if self.count[0] > MOST_PARTS:
            raise _TooManyParts
        super().attach(part)

    def get(self, name: str, failobj: Any = None) -> Any:
        """The first field of this name, or `failobj`, also if the field cannot be parsed. Cached: the parser of `email`
        calls this often, and parsing parameters is quadratic.
        """
        if name not in self.parsed and (found := _tolerant(lambda: super(_Part, self).get(name))) is not None:
            self.parsed[name] = found
        return self.parsed.get(name, failobj)

    def get_content_maintype(self) -> str:
        """The content type by which the parser decides to descend: into parts, not below DEEPEST, and not into attached
        messages.
        """
        kind = super().get_content_maintype()
        return "text" if kind == "message" or (kind == "multipart" and self.depth >= DEEPEST) else kind

    def get_content_type(self) -> str:
        # The parser makes a part of every paragraph in a report of a mail server; it reads well as text.
        found = super().get_content_type()
        return "text/plain" if found == "message/delivery-status" else found


class _Policy(EmailPolicy):
    """The modern policy, with shorter header fields."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        usual = LONGEST_PARAMETERS if name.lower().startswith("content-") else LONGEST_HEADER
        return name, value[: LONGEST_OF.get(name.lower(), usual)]


@dataclass
class _Budget:
    """How much of a message may still be read, and which parts were left out."""

    text: int = MOST_TEXT
    html: int = MOST_HTML
    content: int = MOST_CONTENT
    defects: list[str] = field(default_factory=list)

    def note(self, defect: str) -> None:
        if defect not in self.defects:
            self.defects.append(defect)


def read_mail(raw: bytes) -> Mail:
    """The message, whatever the bytes are."""
    budget = _Budget()
    message = _parse(raw, budget)
    digest = f"sha256:{hashlib.sha256(raw).hexdigest()}"
    message_id = next(iter(_ids(message, "message-id")), digest)
    in_reply_to, references = _ids(message, "in-reply-to"), _ids(message, "references")
    thread_id = thread_of(message_id, in_reply_to, references)
    senders = _people(message, "from", budget) or _people(message, "sender", budget)
    sent_at = _sent_at(message)
    text = _text_of(message, budget)
    data: dict[str, Any] = {
        "message_id": message_id,
        "thread_id": thread_id,
        "in_reply_to": next(iter(in_reply_to), ""),
        "references": references[:1] + references[1:][-MOST_REFERENCES:],
        "from": senders[0] if senders else {"name": "", "address": ""},
        "reply_to": _people(message, "reply-to", budget),
        "to": _people(message, "to", budget),
        "cc": _people(message, "cc", budget),
        "subject": _header(message, "subject")[:2_000],
        "sent_at": sent_at.isoformat() if sent_at else None,
        "list_id": _header(message, "list-id")[:1_000],
        "is_automatic": _is_automatic(message),
        "authentication_results": [value[:2_000] for value in _headers(message, "authentication-results", most=5)],
        "text": text[:MOST_TEXT],
        "attachments": [_described(one, budget) for one in _some(_attachments(message, budget), budget)],
        "defects": budget.defects,
    }
    return Mail(
        message_id=message_id,
        thread_id=thread_id,
        sender=data["from"]["address"],
        sent_at=sent_at,
        data=data,
    )


def attachments_in(raw: bytes) -> list[Attachment]:
    """The attachments of a message with their content, in the order of the data's `attachments`."""
    budget = _Budget()
    return list(_some(_attachments(_parse(raw, budget), budget), budget))


def thread_of(message_id: str, in_reply_to: list[str], references: list[str]) -> str:
    """The id of the thread: that of its first message, which every reply names first in References (RFC 5322 §3.6.4)."""
    return next(iter([*references, *in_reply_to]), message_id)


def describe(attachment: Attachment, *, with_content: bool) -> dict[str, Any]:
    """An attachment as the data of an event names it."""
    described: dict[str, Any] = {
        "name": attachment.name,
        "type": attachment.type,
        "size": len(attachment.content),
        "sha256": hashlib.sha256(attachment.content).hexdigest(),
        "is_inline": attachment.is_inline,
    }
    if with_content:
        described["content"] = base64.b64encode(attachment.content).decode()
    return described


def safe_name(name: str, number: int) -> str:
    """The last part of a path, without characters that a file system may refuse."""
    last = re.split(r"[/\\]", storable_text(name))[-1]
    shown = UNSAFE_IN_NAME.sub("", last).strip(" .")[:LONGEST_NAME]
    return shown or f"attachment-{number}"


def _parse(raw: bytes, budget: _Budget) -> EmailMessage:
    cut = _end_of_line(raw, MOST_LINES)
    if cut < len(raw):
        budget.note(f"longer than {MOST_LINES:,} lines: the rest is not read")
    policy = _Policy(message_factory=_Part, raise_on_defect=False)
    try:
        return _as_message(BytesParser(policy=policy).parsebytes(raw[:cut]))
    except _TooManyParts:
        budget.note(f"more than {MOST_PARTS:,} parts: only the header is read")
    except (MessageError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        budget.note(f"only the header is read: {type(error).__name__}")
    head = re.split(rb"\r?\n\r?\n", raw[:cut], maxsplit=1)[0]
    return _as_message(BytesParser(policy=policy).parsebytes(head, headersonly=True))


def _as_message(parsed: Any) -> EmailMessage:
    assert isinstance(parsed, EmailMessage)  # noqa: S101  (what the factory of the policy makes)
    return parsed


def _end_of_line(raw: bytes, number: int) -> int:
    if raw.count(b"\n") <= number:
        return len(raw)
    at = 0
    for found in re.finditer(rb"\n", raw):
        number -= 1
        if number == 0:
            at = found.end()
            break
    return at


# Header fields


def _header(message: EmailMessage, name: str) -> str:
    """The first value of this name, decoded, in characters that can be stored."""
    return next(iter(_headers(message, name, most=1)), "")


def _headers(message: EmailMessage, name: str, *, most: int) -> list[str]:
    raw = [(key, value) for key, value in message.raw_items() if key.lower() == name][:most]
    # Use the raw value, which has some information.
    decoded = [_tolerant(partial(message.policy.header_fetch_parse, key, value)) or value for key, value in raw]
    return [" ".join(storable_text(str(value)).split()) for value in decoded]


def _ids(message: EmailMessage, name: str) -> list[str]:
    return MESSAGE_ID.findall(_header(message, name))


def _people(message: EmailMessage, name: str, budget: _Budget) -> list[dict[str, str]]:
    if name not in message:
        return []
    if len(next(value for key, value in message.raw_items() if key.lower() == name)) >= LONGEST_OF[name]:
        budget.note(f"more than {LONGEST_OF[name]:,} characters in {name}: the rest is left out")
    fields = _tolerant(lambda: message[name].addresses)
    if fields is None:
        budget.note(f"the header field {name} is not readable")
        return []
    if len(fields) > MOST_PEOPLE:
        budget.note(f"more than {MOST_PEOPLE} addresses in {name}: the rest is left out")
    return [
        {"name": storable_text(one.display_name)[:LONGEST_NAME], "address": storable_text(one.addr_spec).lower()[:320]}
        for one in fields[:MOST_PEOPLE]
    ]


def _sent_at(message: EmailMessage) -> datetime | None:
    sent: datetime | None = _tolerant(lambda: message["date"].datetime if message["date"] else None)
    if sent is None:
        return None
    return _tolerant(lambda: (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).astimezone(UTC))


def _is_automatic(message: EmailMessage) -> bool:
    """Whether a program sent the message: a list, an automatic answer, a report of a mail server. Do not answer
    these.
    """
    submitted = _header(message, "auto-submitted").partition(";")[0].strip().lower()
    return (
        submitted not in ("", "no")
        or _header(message, "precedence").lower() in AUTOMATIC
        or _header(message, "return-path") == "<>"
        or "list-id" in message
    )


def _tolerant(read: Callable[[], T]) -> T | None:
    """The result; None: the header is hostile or broken. The parsers of `email` raise what they like on those."""
    try:
        return read()
    except Exception:
        return None


# Text and attachments


def _text_of(part: EmailMessage, budget: _Budget) -> str:
    if part.is_multipart():
        children = [child for child in part.iter_parts() if isinstance(child, EmailMessage)]
        if _type_of(part) == "multipart/alternative":
            plain_first = sorted(children, key=lambda child: _type_of(child) != "text/plain")
            return next((text for child in plain_first if (text := _text_of(child, budget)).strip()), "")
        return "\n\n".join(text for child in children if (text := _text_of(child, budget)))
    if not _is_text(part):
        return ""
    text = _decoded(part)
    if _type_of(part) == "text/html":
        if len(text) > budget.html:
            budget.note(f"more than {MOST_HTML:,} characters of HTML: the rest is not read")
        text, budget.html = html_to_text(text[: budget.html]), max(0, budget.html - len(text))
    text = text.replace("\r\n", "\n").strip()
    if len(text) > budget.text:
        budget.note(f"more than {MOST_TEXT:,} characters of text: the rest is left out")
    text = text[: budget.text]
    budget.text -= len(text)
    return text


def _is_text(part: EmailMessage) -> bool:
    return _type_of(part) in ("text/plain", "text/html") and not _file_name(part) and _disposition(part) != "attachment"


def _decoded(part: EmailMessage) -> str:
    content = _content(part)
    declared = _tolerant(part.get_content_charset) or ""
    charset = known_charset(declared) if declared else "ascii"
    if charset != "ascii":
        return storable_text(content.decode(charset, "replace"))
    # 8-bit text of senders that name no charset.
    try:
        return storable_text(content.decode())
    except UnicodeDecodeError:
        return storable_text(content.decode("cp1252", "replace"))


def _attachments(message: EmailMessage, budget: _Budget) -> Iterator[Attachment]:
    leaves = (part for part in message.walk() if isinstance(part, EmailMessage) and not part.is_multipart())
    for number, part in enumerate((leaf for leaf in leaves if not _is_text(leaf)), start=1):
        kind = _type_of(part)
        if kind.startswith("multipart/"):
            budget.note(f"parts nested deeper than {DEEPEST} levels: kept as one attachment")
        yield Attachment(
            name=safe_name(_file_name(part) or ("message.eml" if kind == "message/rfc822" else ""), number),
            type=kind,
            content=_content(part),
            is_inline=_disposition(part) == "inline" or (not _disposition(part) and bool(_header(part, "content-id"))),
        )


def _some(attachments: Iterator[Attachment], budget: _Budget) -> Iterator[Attachment]:
    for number, one in enumerate(attachments, start=1):
        if number > MOST_ATTACHMENTS:
            budget.note(f"more than {MOST_ATTACHMENTS} attachments: the rest is left out")
            return
        yield one


def _described(attachment: Attachment, budget: _Budget) -> dict[str, Any]:
    size = len(attachment.content)
    is_small = size <= min(LARGEST_CONTENT, budget.content)
    budget.content -= size if is_small else 0
    return describe(attachment, with_content=is_small)


def _content(part: EmailMessage) -> bytes:
    content = _tolerant(lambda: part.get_payload(decode=True))
    return content if isinstance(content, bytes) else b""


def _type_of(part: EmailMessage) -> str:
    found = _tolerant(part.get_content_type) or "application/octet-stream"
    return storable_text(found)[:LONGEST_NAME]


def _disposition(part: EmailMessage) -> str:
    return _tolerant(part.get_content_disposition) or ""


def _file_name(part: EmailMessage) -> str:
    return storable_text(_tolerant(lambda: part.get_filename() or "") or "")
