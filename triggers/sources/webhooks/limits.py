"""Limits of one source, beside those of the installation: who may send, how much and how often."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from uuid import UUID

from django.conf import settings
from rest_framework.exceptions import APIException

from runs.api.body import TooLarge
from runs.db.sql import fetch
from triggers.sources.http.answers import Unavailable
from triggers.sources.settings import Field, clean, fields_of, setting, whole_number

LARGEST_RATE = 1_000_000
MOST_NETWORKS = 500
# One statement, which does not wait for the disk: the lock on the row is held for less than a millisecond. A window in the
# future is of a clock that has since been set back. A delivery that is refused takes no turn: the limit may be raised meanwhile.
TAKE_TURN = """
WITH quick AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)), taken AS (
  INSERT INTO triggers_deliveryrate AS rate (source_id) SELECT %(source)s::uuid FROM quick
  ON CONFLICT (source_id) DO UPDATE SET
    since = CASE WHEN {is_this_minute} THEN rate.since ELSE statement_timestamp() END,
    count = CASE WHEN {is_this_minute} THEN rate.count + 1 ELSE 1 END
  WHERE rate.count < %(most)s::integer OR NOT {is_this_minute}
  RETURNING 1
)
SELECT NOT EXISTS (SELECT FROM taken), ceil(least(60, extract(epoch FROM
  (SELECT since FROM triggers_deliveryrate WHERE source_id = %(source)s::uuid) + interval '1 minute' - statement_timestamp())))::integer
""".replace(
    "{is_this_minute}", "(rate.since BETWEEN statement_timestamp() - interval '1 minute' AND statement_timestamp())"
)
Network = IPv4Network | IPv6Network


class ForeignAddress(APIException):
    """The request does not come from an allowed address."""

    status_code = 403
    default_detail = "Requests to this source are not accepted from your address."


class TooMany(Unavailable):
    """The source takes no further delivery in this minute."""

    default_detail = "Too many deliveries. Try again later."


def _networks_error(value: str) -> str:
    try:
        networks = networks_of(value)
    except ValueError as error:
        return f"must be IP addresses or networks, such as 192.0.2.7 or 192.0.2.0/24: {error}"
    if len(networks) > MOST_NETWORKS:
        return f"must be at most {MOST_NETWORKS} networks"
    if networks and hides_senders():
        return (
            "needs the addresses of the proxies in front of web: set WAKEFUL_PROXY_NETWORKS. Anyone could otherwise claim an "
            "address in X-Forwarded-For"
        )
    return ""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a source, as settings."""

    networks: str = setting(
        "",
        "Allowed addresses",
        "IP addresses and networks of the sender, separated by spaces; empty: any. An addition to the proof, no replacement.",
        check=_networks_error,
    )
    max_body: int = setting(
        0,
        "Largest body (bytes)",
        "Refuses larger deliveries with 413. 0: only WAKEFUL_MAX_BODY applies, or 1 MiB for a source without verification.",
        check=whole_number(0, 2**31 - 1),
    )
    per_minute: int = setting(
        0,
        "Deliveries per minute",
        "Answers further ones that are authenticated, or need not be, with Retry-After and a status on which the sender tries again. "
        "0: no limit, or 600 for a dead man's switch and for a source without verification.",
        check=whole_number(0, LARGEST_RATE),
    )
    equal_bodies: str = setting(
        "new",
        "Same body, another id",
        "For senders that sign the body but not the id: “new” records both and marks the second; “duplicate” treats the second "
        "as a duplicate, so that a leaked delivery cannot be sent again with another id.",
        choices=("new", "duplicate"),
    )


NO_LIMITS = Limits()


def limit_fields() -> tuple[Field, ...]:
    return fields_of(Limits)


def clean_limits(limits: Mapping[str, object]) -> Limits:
    """The validated limits. InvalidSettings names each wrong field."""
    return clean(Limits, limits) if limits else NO_LIMITS


def without_defaults(limits: Mapping[str, object]) -> dict[str, object]:
    """The limits to store: a default may change with the version."""
    defaults = {field.name: field.default for field in limit_fields()}
    return {name: value for name, value in limits.items() if name not in defaults or value != defaults[name]}


@lru_cache(maxsize=256)
def networks_of(text: str) -> Sequence[Network]:
    """ValueError if one of them is neither an address nor a network."""
    return [ip_network(word) for word in text.replace(",", " ").split()]


def hides_senders() -> bool:
    """Whether the address of a client comes from an unknown proxy."""
    return bool(settings.WAKEFUL_PROXIES and not settings.WAKEFUL_PROXY_NETWORKS)


def require_allowed(client: str, limits: Limits) -> None:
    """Raise ForeignAddress unless the address may send."""
    if limits.networks and not (client and any(ip_address(client) in one for one in networks_of(limits.networks))):
        raise ForeignAddress


def require_size(length: int, most: int) -> None:
    if most and length > most:
        raise TooLarge


def take_turn(source_id: UUID, per_minute: int, *, status: int) -> None:
    """Count a delivery. Raises TooMany, with this status, if the minute's deliveries are used up; 0: there is no limit."""
    if per_minute:
        [(is_too_many, seconds)] = fetch(TAKE_TURN, {"source": source_id, "most": per_minute})
        if is_too_many:
            raise TooMany(status, wait=max(seconds, 1))
