"""What a channel is, and the four things that it may say of a message that it was to send."""

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Protocol

from runs.notifications.message import Message

WHOLE = 30.0  # seconds that sending a message may take in all
CONNECT = 8.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Sent:
    """The receiver has confirmed it. `receipt`: what it calls the message, where that is needed later."""

    receipt: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The receiver will never take it: repeating makes no sense."""

    why: str


@dataclass(frozen=True, kw_only=True)
class NotNow:
    """The receiver has not taken it, and may take it later. `is_away`: the host is, for its other receivers as well."""

    why: str
    after: timedelta | None = None
    is_away: bool = True


@dataclass(frozen=True, kw_only=True)
class Unknown:
    """It was handed over, and no answer came: it may have arrived."""

    why: str


Outcome = Sent | Refused | NotNow | Unknown


class Channel(Protocol):
    """No method quotes an address or a receiver's full answer: both may contain secrets.

    `can_tell_repeats`: receivers recognize a message that comes again, so one that may have arrived is sent again. `rank`: of
    several channels that take an address, the lowest counts.
    """

    name: ClassVar[str]
    can_tell_repeats: ClassVar[bool]
    rank: ClassVar[int]

    def takes(self, address: str) -> bool:
        """Does the address belong to this channel?"""

    def fault(self, address: str) -> str:
        """Why nothing can be sent to this address, and the fix; empty if something can."""

    def shown(self, address: str) -> str:
        """The address without its secret parts."""

    def host(self, address: str) -> str:
        """What is away together: one host's breaker counts for all addresses on it. Empty: it cannot be away."""

    def send(self, address: str, message: Message) -> Outcome:
        """Send it, within about a minute. Any thread may call it."""


@cache
def channels() -> Mapping[str, Channel]:
    """Every channel by its name, the lowest rank first."""
    import runs.notifications.channels as package

    modules = [import_module(one.name) for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    found: list[Channel] = [module.CHANNEL for module in modules if hasattr(module, "CHANNEL")]
    return {channel.name: channel for channel in sorted(found, key=lambda channel: channel.rank)}


def channel_of(address: str) -> Channel | None:
    """The channel that sends to this address."""
    return next((channel for channel in channels().values() if channel.takes(address)), None)


def fault_of(address: str) -> str:
    """Why nothing can be sent to this address; empty if something can. The address is not quoted."""
    channel = channel_of(address)
    if channel is None:
        return "no channel sends there. Use mailto:, https:, slack+https:, inbox:, or the URL of a service of apprise"
    return channel.fault(address)
