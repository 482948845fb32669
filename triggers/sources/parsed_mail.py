"""Mail that a provider has taken apart and sent as a form. The data of its event has the fields of mail from anywhere else."""

from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from email.utils import getaddresses
from typing import Any

from triggers.sources.http.forms import File
from triggers.sources.mail import (
    LARGEST_CONTENT,
    MOST_ATTACHMENTS,
    MOST_CONTENT,
    Attachment,
    Mail,
    describe,
    read_mail,
    safe_name,
)

PEOPLE = frozenset({"from", "sender", "reply-to", "to", "cc"})
# What the data of an event is read from. Content-Type is not among them: it describes the message as it was sent, while here its text
# is a field, and its files are files of the form.
WANTED = PEOPLE | {
    "message-id",
    "in-reply-to",
    "references",
    "date",
    "subject",
    "list-id",
    "auto-submitted",
    "precedence",
    "return-path",
    "authentication-results",
}
LONGEST_DECODED = 2_000  # characters of a value that is encoded again


def put_together(headers: Iterable[tuple[str, str]], text: str, html: str, files: Sequence[File]) -> Mail:
    """The mail with these parts."""
    found: dict[str, str] = {}
    for name, value in headers:
        found.setdefault(name.lower(), value)
    lines = [f"{name}: {_encoded(name, ' '.join(found[name].split()))}" for name in sorted(WANTED & found.keys())]
    subtype, body = ("html", html) if html and not text.strip() else ("plain", text)
    lines += [f"Content-Type: text/{subtype}; charset=utf-8", "Content-Transfer-Encoding: 8bit", "", body]
    mail = read_mail("\r\n".join(lines).encode("utf-8", "replace"))
    defects = list(mail.data["defects"])
    if len(files) > MOST_ATTACHMENTS:
        defects.append(f"more than {MOST_ATTACHMENTS} attachments: the rest is left out")
    return replace(mail, data={**mail.data, "attachments": list(_described(files)), "defects": defects})


def _encoded(name: str, value: str) -> str:
    """A value as mail has it, in ASCII: a provider may have decoded it."""
    if value.isascii():
        return value
    value = value[:LONGEST_DECODED]
    if name not in PEOPLE:
        return _words(value)
    try:
        people = getaddresses([value])
    except Exception:  # the parser raises what it likes on hostile values, RecursionError among it
        return _words(value)
    return ", ".join(f"{_words(shown)} <{address}>" if shown else address for shown, address in people)


def _words(text: str) -> str:
    """Encoded words (RFC 2047); the space between them does not count."""
    pieces = (text[start : start + 15] for start in range(0, len(text), 15))
    return " ".join(f"=?utf-8?b?{b64encode(piece.encode('utf-8', 'replace')).decode()}?=" for piece in pieces)


def as_attachments(files: Sequence[File]) -> list[Attachment]:
    """The files of a form as those of a message."""
    return [
        Attachment(name=safe_name(file.name, number), type=file.type, content=file.content)
        for number, file in enumerate(files[:MOST_ATTACHMENTS], start=1)
    ]


def _described(files: Sequence[File]) -> Iterator[dict[str, Any]]:
    left = MOST_CONTENT
    for one in as_attachments(files):
        is_small = len(one.content) <= min(LARGEST_CONTENT, left)
        left -= len(one.content) if is_small else 0
        yield describe(one, with_content=is_small)
