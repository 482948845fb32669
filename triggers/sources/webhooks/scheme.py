"""Schemes of webhook providers, one file each in this package. A scheme only has to register itself."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache, cached_property
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from uuid_utils.compat import uuid7

from triggers.sources.continuity import Gaps
from triggers.sources.http.forms import Form, parse_form
from triggers.sources.http.headers import Headers
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.kind import Kind, Waits, kinds
from triggers.sources.webhooks.proof import Proof, SigningSecret

S = TypeVar("S")


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A request to an endpoint, not authenticated yet."""

    source_id: UUID
    endpoint: str
    headers: Headers
    body: bytes
    received_at: datetime
    method: str = "POST"
    url: str = ""  # with its query, as the sender calls it; some senders sign it
    per_minute: int = 0  # deliveries that the source takes; 0: no limit
    id: UUID = field(default_factory=uuid7)  # of its event, if its sender gives none

    @cached_property
    def form(self) -> Form:
        """Raises NoForm."""
        return parse_form(self.headers, self.body)

    @cached_property
    def payload(self) -> Payload:
        return read_payload(self.body)


@dataclass(frozen=True, kw_only=True)
class Description:
    """Id, type and payload of an authenticated delivery."""

    id: str
    type: str
    payload: Payload
    subject: str = ""
    time: datetime | None = None
    source: str = ""  # the sender's own, if its ids are unique within it only; else the address of the endpoint
    body: bytes | None = None  # its part of a delivery of several events; None: the delivery has this event alone


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A delivery as the sender makes it."""

    body: bytes
    headers: Mapping[str, str]
    method: str = "POST"
    url: str = ""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer that this sender expects."""

    status: int = 200
    body: bytes = b""
    content_type: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Press:
    """A person has pressed a button of a request (`runs.actions.pressed_buttons`). `message` is where it was, as a receipt names it;
    `request` None: the button names none. `answered`: what the scheme needs to answer it."""

    workspace: str
    account: str
    request: UUID | None
    message: Mapping[str, Any]
    choice: str
    text: str = ""
    answered: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class SentCode:
    """A message with a code that links an account (`runs.actions.chat_accounts`). Not private: others may have read it."""

    code: str
    workspace: str
    account: str
    name: str
    is_private: bool
    answered: Mapping[str, Any] = field(default_factory=dict)


Act = Press | SentCode


class Scheme(Kind[S]):
    """A kind of sender: how it authenticates a delivery and names its event.

    `prove`, `greet`, `describe` and `handshake` get arbitrary bytes; the only exception they may raise is Rejected.
    """

    waits = Waits.SENDER
    gaps = Gaps(
        are_seen=False,
        how="a delivery that its sender gives up leaves no trace here; the sender may have a list of them.",
    )
    docs = "webhooks"
    methods: ClassVar[tuple[str, ...]] = ("POST",)  # of deliveries
    per_minute: ClassVar[int] = 0  # deliveries that a source without a limit of its own takes; 0: any number
    largest: ClassVar[int] = 0  # bytes of a body that a source without a limit of its own takes; 0: WAKEFUL_MAX_BODY
    overloaded: ClassVar[int] = 503  # the status on which this sender tries again
    accepted: ClassVar[Reply | None] = None  # the answer to an event, where the sender reads more of it than a 2xx
    retried_for: ClassVar[timedelta] = timedelta()  # so long it repeats a delivery with the first signed timestamp
    fetches: ClassVar[bool] = False  # `prove` may ask another server
    subscription_ends: ClassVar[bool] = False  # data.expires of its events has the time; their bodies are empty

    @abstractmethod
    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: S) -> Proof:
        """The proof of this delivery. Raises Rejected."""

    @abstractmethod
    def describe(self, delivery: Delivery, proof: Proof, settings: S) -> Description | list[Description]:
        """The event in an authenticated delivery; or several, at least one, which are recorded together or not at all."""

    @abstractmethod
    def sample(self, settings: S) -> Sample | None:
        """A realistic delivery without its proof, with a new id each time. None: only the sender can prove a delivery."""

    @abstractmethod
    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: S) -> Mapping[str, str]:
        """The headers that prove a sample."""

    def signed(self, sample: Sample, secret: bytes, at: datetime, settings: S) -> Sample:
        """The sample with its proof."""
        return replace(sample, headers={**sample.headers, **self.sign(sample, secret, at, settings)})

    def address(self, slug: str, secret: str = "") -> str:
        """The path of the source's address; with its secret, if that is a part of it."""
        return f"/hooks/{slug}/"

    def greet(self, delivery: Delivery, proof: Proof, settings: S) -> Reply | None:
        """The answer to an authenticated delivery that is no event, such as a challenge."""
        return None

    def act(self, delivery: Delivery, settings: S) -> Act | None:
        """What a person does by this authenticated delivery, which then is no event. None: it is one."""
        return None

    def answer_act(self, act: Act, words: str, *, is_refusal: bool, settings: S) -> Reply:
        """The answer for the person alone; in the transaction of the act."""
        return self.accepted or Reply()

    def asks(self, settings: S) -> bool:
        """Are requests for a decision posted, and their buttons taken?"""
        return False

    def handshake(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: S) -> Reply | None:
        """The answer to a GET or OPTIONS request with which the sender checks the address. Raises Rejected."""
        return None

    def leaves_id_unsigned(self, settings: S) -> bool:
        """Whether the body is signed but the id is not, so that a leaked delivery can be sent again with another id."""
        return False

    def secret_headers(self, settings: S) -> frozenset[str]:
        """Further headers that must not be stored."""
        return frozenset()


@cache
def schemes() -> Mapping[str, Scheme[Any]]:
    """Every scheme by name."""
    return {name: kind for name, kind in kinds().items() if isinstance(kind, Scheme)}
