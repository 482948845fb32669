"""Where notifications may go: who may add recipients, or wrote an address that means another one tomorrow, reaches nothing inside."""

from collections.abc import Sequence

from django.conf import settings

from agents.guards.addresses import Network, networks_of

HINT = "allow its network in WAKEFUL_NOTIFY_NETWORKS"


def networks_for(address: str) -> Sequence[Network] | None:
    """The networks, beside public addresses, in which the host of a recipient's address may be. None: in any, as the operator of
    the processes wrote the address."""
    if address == settings.WAKEFUL_NOTIFY_TO.strip():
        return None
    return networks_of(settings.WAKEFUL_NOTIFY_NETWORKS)


def with_hint(why: str) -> str:
    return f"{why}; {HINT}" if why.endswith("not a public one") else why
