"""Forms whose fields may be in charsets of their own, and with files: mail that a provider has taken apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl

from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadhandler import FileUploadHandler
from django.http.multipartparser import MultiPartParser, MultiPartParserError

from agents.guards.foreign_text import known_charset, storable_text
from triggers.sources.http.headers import Headers, as_text
from triggers.sources.http.payload import FORM, MOST_ESCAPES, MOST_FIELDS

MULTIPART = "multipart/form-data"
BYTES = "latin-1"  # a character for each byte: a sender may write each field in a charset of its own


class NoForm(ValueError):
    """The body is not a readable form; the message gives the reason, without its content."""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file in a form."""

    name: str
    type: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Form:
    """The last value of each field, and the files in their order."""

    fields: Mapping[str, bytes]
    files: tuple[File, ...] = ()

    def text(self, name: str, charset: str = "utf-8") -> str:
        """A field as text that PostgreSQL can store; empty if there is none."""
        return storable_text(self.fields.get(name, b"").decode(known_charset(charset), "replace"))


def is_form(headers: Headers) -> bool:
    return headers.media_type() in (MULTIPART, FORM)


def parse_form(headers: Headers, body: bytes) -> Form:
    """The form in a body of either content type. Raises NoForm."""
    try:
        return _multipart(headers, body) if headers.media_type() == MULTIPART else _urlencoded(body)
    except (MultiPartParserError, SuspiciousOperation, ValueError) as error:
        raise NoForm(f"no readable form: {type(error).__name__}") from None


def _multipart(headers: Headers, body: bytes) -> Form:
    about = {"CONTENT_TYPE": as_text(headers.get("content-type", b"")), "CONTENT_LENGTH": str(len(body))}
    kept = _Keep()
    fields, _ = MultiPartParser(about, BytesIO(body), [kept], BYTES).parse()
    return Form(fields={name: str(value).encode(BYTES) for name, value in fields.items()}, files=tuple(kept.files))


def _urlencoded(body: bytes) -> Form:
    if body.count(b"%") > MOST_ESCAPES:
        raise ValueError("more escapes than are read")
    pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, encoding=BYTES, max_num_fields=MOST_FIELDS)
    return Form(fields={name: value.encode(BYTES) for name, value in pairs})


class _Keep(FileUploadHandler):
    """Keeps files in memory; the length of the body bounds them."""

    def __init__(self) -> None:
        super().__init__()
        self.files: list[File] = []
        self._content = bytearray()

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self._content = bytearray()

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self._content += raw_data

    def file_complete(self, file_size: int) -> None:
        name = storable_text((self.file_name or "").encode(BYTES, "replace").decode("utf-8", "replace"))
        self.files.append(File(name=name, type=storable_text(self.content_type or ""), content=bytes(self._content)))
