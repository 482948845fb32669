"""How the object that an event names is opened (`triggers.sources.files.open_object`); `config.wiring` connects it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, kw_only=True)
class ObjectVersion:
    """An object as an event describes it. `version` is empty where the event names none; `source` is the slug of the event's source."""

    bucket: str
    key: str
    etag: str
    version: str
    source: str


class Opening(Protocol):
    def __call__(self, wanted: ObjectVersion, /, *, most: int) -> AbstractContextManager[BinaryIO]:
        """The content, of at most `most` bytes. FileChanged: the object is another one, or gone; FileRefused: it may not be opened, or is
        larger; FileUnavailable: its store does not answer."""


class _Port:
    opening: Opening | None = None


_port = _Port()


def connect(opening: Opening) -> None:
    _port.opening = opening


def open_object(wanted: ObjectVersion, *, most: int) -> AbstractContextManager[BinaryIO]:
    if _port.opening is None:
        raise RuntimeError("agents.kernel.object_stores is not connected; config.wiring connects it")
    return _port.opening(wanted, most=most)
