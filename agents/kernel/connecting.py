"""Which connections an agent may use, and where their access tokens come from (`runs.connections`); `config.wiring` connects it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network
from typing import Protocol


@dataclass(frozen=True, kw_only=True)
class MayUse:
    """The connections that an agent may use: `names` has each connection by the name that code and tools use. A connection
    of a person must be one of `acts_for` (empty: of no person); None: of any person, since the code names it."""

    names: Mapping[str, str] = field(default_factory=dict)
    acts_for: str | None = None


@dataclass(frozen=True, kw_only=True)
class Lease:
    """An access token, and where it may be sent: to these hosts, which may have addresses in these networks besides public ones.
    `owner`: the user whose connection it is; empty: it is the installation's."""

    token: str = field(repr=False)
    hosts: Sequence[str]
    networks: Sequence[IPv4Network | IPv6Network] = ()
    owner: str = ""


class Leasing(Protocol):
    def __call__(self, name: str, /, *, refused: str = "", may_retry: bool = True) -> Lease:
        """The access token of the connection of this name; `refused` is one that a host of the provider has refused, so that another is
        needed. NotConnected: a person must connect it. Retry, or without `may_retry` ProviderAway: there is none just now."""


class _Port:
    lease: Leasing | None = None


_port = _Port()


def connect(lease: Leasing) -> None:
    _port.lease = lease


def lease(name: str, /, *, refused: str = "", may_retry: bool = True) -> Lease:
    if _port.lease is None:
        raise RuntimeError("agents.kernel.connecting.lease is not connected; config.wiring connects it")
    return _port.lease(name, refused=refused, may_retry=may_retry)
