"""Header fields over bytes, and which of them are secrets."""

import re
from collections.abc import Iterable, Iterator, Mapping

REDACTED = "[redacted]"

# Signatures are secrets too: where nothing else is signed, one is all a replay needs.
SECRET_NAME = re.compile(
    r"auth|cookie|signature|\bsig\b|hmac|token|secret|passw|pass-?(?:code|phrase)|\bpass\b|access-?code|(?<!idempotency-)key\b"
    r"|apikey|credential|session|jwt|csrf|bearer|\botp\b|\bpin\b|security|^proxy\b"
)


UNREADABLE = "wakeful.unreadable_fields"  # in a WSGI environment: names of fields whose values the server left out


class UnreadableField(Exception):
    """A field is needed whose value has other characters than ASCII: without its id, a delivery that comes twice would be
    two events."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The header field {name} has other characters than ASCII.")
        self.name = name


class Headers(Mapping[str, bytes]):
    """A request's header fields, found by name in any case (RFC 9110 §5.1), their values as they were on the wire. Raises
    UnreadableField where one is asked for that the server could not read; others of them are ignored."""

    def __init__(self, fields: Mapping[str, str], unreadable: Iterable[str] = ()) -> None:
        self._fields = {name.lower(): _wire_bytes(value) for name, value in fields.items()}
        self.unreadable = frozenset(unreadable)

    def __getitem__(self, name: str) -> bytes:
        if name.lower() in self.unreadable:
            raise UnreadableField(name.lower())
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return as_text(self.get("content-type", b"")).partition(";")[0].strip().lower()


def redact(headers: Headers, extra: Iterable[str] = ()) -> dict[str, str]:
    """The headers as they may be stored: secrets gone, every value text that PostgreSQL accepts."""
    secret = {name.lower() for name in extra}
    return {
        as_text(name.encode("utf-8", "replace")): (
            REDACTED if name in secret or SECRET_NAME.search(name) else as_text(value)
        )
        for name, value in headers.items()
    }


def as_text(value: bytes) -> str:
    """A header's value as text: UTF-8 where it is, else byte by byte; never U+0000."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return text.replace("\0", "\ufffd")


def _wire_bytes(value: str) -> bytes:
    # PEP 3333 hands header bytes over as latin-1 text; text that is not came from no wire.
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "replace")
    return raw.strip(b" \t")
