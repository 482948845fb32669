"""What makes a delivery believable: a secret that matched, in constant time, and a fresh timestamp."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

TOLERANCE = timedelta(minutes=5)
UNIX_SECONDS = re.compile(rb"[0-9]{1,11}")


class Rejected(Exception):
    """The delivery is not proven. The reason is for our log; the sender learns nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class SigningSecret:
    """A source's secret in the clear, with the row it came from and the time it counts."""

    id: int
    value: bytes = field(repr=False)
    not_before: datetime | None = None
    not_after: datetime | None = None

    def is_live(self, now: datetime) -> bool:
        return (self.not_before is None or self.not_before <= now) and (self.not_after is None or now < self.not_after)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Which secret matched, and the time the sender signed where its scheme has one."""

    secret: SigningSecret | None
    signed_at: datetime | None = None


def matching_secret(secrets: Iterable[SigningSecret], now: datetime, proves: Callable[[bytes], bool]) -> SigningSecret:
    """The live secret that proves the delivery, or Rejected."""
    live = [secret for secret in secrets if secret.is_live(now) and secret.value]
    if not live:
        raise Rejected("the source has no live secret")
    # All are tried, whichever matches, so that timing tells nothing of which one it was.
    matched = [secret for secret in live if proves(secret.value)]
    if not matched:
        raise Rejected("no live secret matches")
    return matched[0]


def fresh_time(value: bytes, now: datetime) -> datetime:
    """The signed time, or Rejected: strictly a whole number of seconds, within five minutes of now."""
    if not UNIX_SECONDS.fullmatch(value):
        raise Rejected("the timestamp is missing or not a whole number of seconds")
    # Eleven digits end in the year 5138, so this cannot overflow.
    signed_at = datetime.fromtimestamp(int(value), UTC)
    if abs(now - signed_at) > TOLERANCE:
        raise Rejected(f"the timestamp is {abs(now - signed_at)} off")
    return signed_at
