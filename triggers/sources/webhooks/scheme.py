"""What a provider's scheme is. One file per scheme beside this one; being there and registered is all it needs."""

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
    """One request to an endpoint, as it came, before anything in it is believed."""

    source_id: UUID
    endpoint: str
    headers: Headers
    body: bytes
    received_at: datetime


@dataclass(frozen=True, kw_only=True)
class Description:
    """What a proven delivery says about itself."""

    id: str
    type: str
    payload: Payload
    subject: str = ""
    time: datetime | None = None


class Scheme(ABC, Generic[S]):
    """How one kind of sender proves that a delivery is its own, and where it names the event.

    `prove` and `describe` meet any bytes at all: Rejected is the only exception they may raise.
    """

    name: ClassVar[str]
    label: ClassVar[str]
    help_text: ClassVar[str]
    settings_class: type[S]
    needs_secret: ClassVar[bool] = True

    @property
    def fields(self) -> tuple[Field, ...]:
        """The settings a form asks for."""
        return fields_of(self.settings_class)

    def clean_settings(self, settings: Mapping[str, object]) -> S:
        """The settings, checked and typed, or InvalidSettings naming each field and its fix."""
        return clean(self.settings_class, settings)

    @abstractmethod
    def clean_secret(self, secret: str) -> str:
        """The secret as it is stored, or InvalidSettings."""

    @abstractmethod
    def new_secret(self) -> str:
        """A fresh secret in the form its sender expects."""

    @abstractmethod
    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: S) -> Proof:
        """What vouches for this delivery, or Rejected."""

    @abstractmethod
    def describe(self, delivery: Delivery, proof: Proof, settings: S) -> Description:
        """The event this delivery tells of, once it is proven."""

    def leaves_id_unsigned(self, settings: S) -> bool:
        """Is the body signed and the delivery's id not, so that a delivery that has leaked can come again under another id?"""
        return False

    def secret_headers(self, settings: S) -> frozenset[str]:
        """Headers, beyond the well-known ones, that must not be stored."""
        return frozenset()


def register(scheme: type[Scheme[Any]]) -> type[Scheme[Any]]:
    """Make a scheme known under its name."""
    _schemes[scheme.name] = scheme()
    return scheme


@cache
def schemes() -> Mapping[str, Scheme[Any]]:
    """Every scheme by name."""
    import triggers.sources.webhooks as package

    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return dict(sorted(_schemes.items()))
