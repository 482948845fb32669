"""Kinds of sources that Wakeful reads from, such as brokers and feeds: the contract between a kind and `manage.py sources`.

Each source is read by one process at a time, in one thread. The thread reads a batch and hands it over; the process records its
events, in the order of the batch, and stores the batch's position in the same transaction; then the thread confirms the batch to
the broker and reads the next one. Therefore:

- A message is read again after a crash, and recorded once: (source, `origin`, `id`) identifies it. Whatever identifies a message
  at the sender goes into them, and nothing that differs between two reads of it.
- A kind keeps its place either at the broker (`confirm`) or in `Batch.position` (`Assignment.position` at the next connection).
- A reader never writes to Wakeful's database (`Batch.keep` does, in the process's transaction). One that reads rows of its own
  uses the connection of its thread, in autocommit, and closes it in `close`; the process closes it after each call, too.
- A reader raises SourceError, or any other exception, if the source does not answer; then the process closes it, shows the
  error, and connects again after a pause that doubles up to a minute.
- Nothing is read while too many events of such sources wait for dispatch.
- What was lost before it was read is not passed over: a batch has its place in each stream (`Batch.spans`), and the process finds
  the gaps. A kind that cannot know its place declares it (`Kind.gaps`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID, uuid4

from triggers.sources.continuity import Gap, Marks, Span
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Kind, Waits, kinds
from triggers.sources.settings import InvalidSettings

S = TypeVar("S")

BATCH = 500  # messages of a batch
BATCH_BYTES = 8 * 2**20  # of their bodies, after which a batch takes no further message
RETURNS_WITHIN = 60.0  # seconds beyond its `wait`, after which a call of a reader counts as hung


@dataclass(frozen=True, kw_only=True)
class Received:
    """A message as an event. `origin` is empty for the source itself; `payload` is usually `read_payload(body)`."""

    id: str
    type: str
    origin: str = ""
    subject: str = ""  # the key by which triggers may order: a message group, the key of a partition
    time: datetime | None = None
    payload: Payload = field(default_factory=Payload)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Poison:
    """A message that cannot become an event, and why. It is kept and shown, and counts as read."""

    id: str
    reason: str
    origin: str = ""
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Messages in the order in which they become events; at most BATCH, and about BATCH_BYTES."""

    messages: Sequence[Received | Poison] = ()
    position: Any = None  # JSON, stored with the events; None leaves the stored one
    receipt: Any = None  # the reader's own note for `confirm`
    lag: int | None = None  # messages that wait at the source after this batch, if the reader knows
    next_in: timedelta = timedelta()  # how long to wait before the next read
    keep: Callable[[], None] | None = None  # writes rows of the kind's own in the same transaction; may be called again
    failure: "SourceError | None" = None  # the source did not answer; what the batch keeps is recorded before the pause
    spans: Sequence[Span] = ()  # in order: the process finds the gaps before and between them
    gaps: Sequence[Gap] = ()  # those that numbers cannot say, such as a failover
    id: UUID = field(default_factory=uuid4, compare=False)

    @property
    def says_something(self) -> bool:
        """Whether the batch has anything to record."""
        kept = (self.messages, self.keep, self.spans, self.gaps)
        return any(kept) or self.position is not None or self.lag is not None


@dataclass(frozen=True, kw_only=True)
class Assignment(Generic[S]):
    """A source to read, and the position up to which it has been recorded; None at first."""

    slug: str
    settings: S
    secret: str = ""  # empty if it has none
    position: Any = None
    source_id: UUID | None = None  # of the source's row, for rows of the kind's own
    marks: Marks = field(default_factory=dict)  # of the last recorded spans


def origin_of(slug: str) -> str:
    """The origin of a source's messages that name none."""
    return f"/sources/{slug}/"


class SourceError(Exception):
    """The source cannot be read now. The message gives the reason, `remedy` the fix; both are shown to operators."""

    def __init__(self, message: str, *, remedy: str = "", retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy
        self.retry_after = retry_after  # seconds that the server requests (Retry-After); else the pause doubles


class Reader(ABC):
    """A connection to a source. All its methods are called by one thread."""

    @abstractmethod
    def read(self, wait: float) -> Batch:
        """The next messages that are not confirmed, waiting at most `wait` seconds for the first one. A batch without messages
        is no error."""

    def confirm(self, batch: Batch) -> None:  # noqa: B027  (a position needs no confirmation)
        """Confirm a recorded batch to the broker. If this fails, its messages are read again."""

    def stay(self) -> None:  # noqa: B027
        """Keep the connection alive. Called every second while reading is paused."""

    def hurry(self) -> None:  # noqa: B027
        """There is something new at the source: the next read need not wait for its time."""

    def leave(self) -> None:  # noqa: B027
        """The source is disabled or deleted: end what was begun at the provider. Called before `close`."""

    def close(self) -> None:  # noqa: B027
        """Close the connection. Also called after an error."""


class Runner(Kind[S]):
    """A kind of source that is read by `manage.py sources`."""

    waits = Waits.READER
    extra: ClassVar[str] = ""  # of pyproject.toml, with the client library

    @abstractmethod
    def connect(self, assignment: Assignment[S]) -> Reader:
        """Connect, and go on behind the last confirmed message, or at `assignment.position`. Raises SourceError."""

    def library(self, module: str) -> Any:
        """A module of the client library. SourceError names the extra if it is not installed."""
        try:
            return import_module(module)
        except ImportError as error:
            raise SourceError(
                f"The client library of {self.label} is not installed: {error}",
                remedy=f"Install the extra {self.extra!r} in every process's environment (`make .venv/extra-{self.extra}`, or "
                f"`pip install wakeful[{self.extra}]`), and restart the sources process.",
            ) from None


class Broker(Runner[S]):
    """A runner whose secret is the password of a broker, which may need none."""

    is_secret_given = True
    docs = "brokers"

    def clean_secret(self, secret: str) -> str:
        if not secret.strip():
            raise InvalidSettings({"secret": "must not be empty"})
        return secret

    def new_secret(self) -> str:
        raise NotImplementedError("the broker has the password")


def runners() -> dict[str, Runner[Any]]:
    """The kinds that are read by `manage.py sources`, by name."""
    return {name: kind for name, kind in kinds().items() if isinstance(kind, Runner)}
