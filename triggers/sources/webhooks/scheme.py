"""Schemes of webhook providers, one file each in this package. A scheme only has to register itself."""

import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar
from uuid import UUID

from triggers.sources.http.headers import Headers
from triggers.sources.http.payload import Payload
from triggers.sources.webhooks.proof import Proof, SigningSecret
from triggers.sources.webhooks.settings import Field, clean, fields_of

S = TypeVar("S")
_schemes: dict[str, "Scheme[Any]"] = {}


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """A request to an endpoint, not authenticated yet."""

    source_id: UUID
    endpoint: str
    headers: Headers
    body: bytes
    received_at: datetime


@dataclass(frozen=True, kw_only=True)
class Description:
    """Id, type and payload of an authenticated delivery."""

    id: str
    type: str
    payload: Payload
    subject: str = ""
    time: datetime | None = None


class Scheme(ABC, Generic[S]):
    """How one kind of sender authenticates a delivery and names its event.

    `prove` and `describe` get arbitrary bytes; the only exception they may raise is Rejected.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    help_text: ClassVar[str]
    settings_class: type[S]
    needs_secret: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[Field, ...]:
        """The settings as form fields."""
        return fields_of(self.settings_class)

    def clean_settings(self, settings: Mapping[str, object]) -> S:
        """The validated, typed settings. InvalidSettings names each wrong field and its fix."""
        return clean(self.settings_class, settings)

    @abstractmethod
    def clean_secret(self, secret: str) -> str:
        """The secret to store. Raises InvalidSettings."""

    @abstractmethod
    def new_secret(self) -> str:
        """A new secret in the format that the sender expects."""

    @abstractmethod
    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: S) -> Proof:
        """The proof of this delivery. Raises Rejected."""

    @abstractmethod
    def describe(self, delivery: Delivery, proof: Proof, settings: S) -> Description:
        """The event in an authenticated delivery."""

    def leaves_id_unsigned(self, settings: S) -> bool:
        """Whether the body is signed but the id is not, so that a leaked delivery can be sent again with another id."""
        return False

    def secret_headers(self, settings: S) -> frozenset[str]:
        """Further headers that must not be stored."""
        return frozenset()


def register(scheme: type[Scheme[Any]]) -> type[Scheme[Any]]:
    """Register a scheme under its name."""
    _schemes[scheme.name] = scheme()
    return scheme


@cache
def schemes() -> Mapping[str, Scheme[Any]]:
    """Every scheme by name."""
    import triggers.sources.webhooks as package

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return dict(sorted(_schemes.items()))
