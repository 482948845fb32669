"""Header fields as bytes, and the redaction of secret ones."""

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from functools import lru_cache

REDACTED = "[redacted]"

# Signatures are secrets too: if only the body is signed, a signature is enough for a replay.
SECRET_NAME = re.compile(
    r"auth|cookie|signature|\bsig\b|hmac|token|secret|passw|pass-?(?:code|phrase)|\bpass\b|access-?code|(?<!idempotency-)key\b"
    r"|apikey|credential|session|jwt|csrf|bearer|\botp\b|\bpin\b|security|^proxy\b"
)

UNREADABLE = "wakeful.unreadable_fields"  # key in the WSGI environment: names of fields whose values the server omitted


class UnreadableField(Exception):
    """A required field has a value with non-ASCII characters. Ignoring an id, for example, would turn a redelivery into a
    second event."""

    def __init__(self, name: str) -> None:
        super().__init__(f"The header field {name} has non-ASCII characters; send ASCII only.")
        self.name = name


class Headers(Mapping[str, bytes]):
    """A request's header fields by case-insensitive name (RFC 9110 §5.1), with their values as received. Reading a field
    that the server could not read raises UnreadableField; other unreadable fields are ignored."""

    def __init__(self, fields: Mapping[str, str], unreadable: Iterable[str] = ()) -> None:
        self._fields = {name.lower(): _wire_bytes(value) for name, value in fields.items()}
        self.unreadable = frozenset(unreadable)

    def __getitem__(self, name: str) -> bytes:
        if name.lower() in self.unreadable:
            raise UnreadableField(name.lower())
        return self._fields[name.lower()]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def items(self) -> ItemsView[str, bytes]:
        return super().items() if self.unreadable else self._fields.items()

    def __len__(self) -> int:
        return len(self._fields)

    def media_type(self) -> str:
        """The content type without its parameters, in lower case."""
        return as_text(self.get("content-type", b"")).partition(";")[0].strip().lower()

    def bearer(self) -> bytes:
        """The token of Authorization; empty: there is none, or another scheme. Its name is case-insensitive (RFC 9110 §11.1)."""
        scheme, _, token = self.get("authorization", b"").partition(b" ")
        return token.strip() if scheme.lower() == b"bearer" else b""


def redact(headers: Headers, extra: Iterable[str] = ()) -> dict[str, str]:
    """The headers to store: without secrets, and with values as text that PostgreSQL accepts."""
    secret = {name.lower() for name in extra}
    return {
        as_text(name.encode("utf-8", "replace")): (REDACTED if name in secret or _is_secret(name) else as_text(value))
        for name, value in headers.items()
    }


@lru_cache(maxsize=1024)  # senders use few names
def _is_secret(name: str) -> bool:
    return SECRET_NAME.search(name) is not None


def redact_texts(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of a message to store, like `redact`."""
    return {
        storable(name): REDACTED if _is_secret(name.lower()) else storable(value) for name, value in headers.items()
    }


def storable(text: str) -> str:
    """Text that PostgreSQL accepts."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\ufffd")


def as_text(value: bytes) -> str:
    """A header's value as text: UTF-8 if valid, else latin-1; never with U+0000."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = value.decode("latin-1")
    return text.replace("\0", "\ufffd")


def _wire_bytes(value: str) -> bytes:
    # PEP 3333 passes header bytes as latin-1 text; other text was not received from a client.
    try:
        raw = value.encode("latin-1")
    except UnicodeEncodeError:
        raw = value.encode("utf-8", "replace")
    return raw.strip(b" \t")
