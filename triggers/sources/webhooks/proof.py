"""What makes a delivery believable: a secret that matched, in constant time, and a fresh timestamp."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agents.durations import in_words

TOLERANCE = timedelta(minutes=5)
UNIX_SECONDS = re.compile(rb"[0-9]{1,11}")


class Rejected(Exception):
    """The delivery is not proven. The reason is for our log; the sender learns nothing."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class SigningSecret:
    """A live secret of a source in the clear, and the row it came from."""

    id: int
    value: bytes = field(repr=False)
    last_matched_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Proof:
    """Which secret matched, and the time the sender signed where its scheme has one."""

    secret: SigningSecret | None
    signed_at: datetime | None = None


def matching_secret(secrets: Sequence[SigningSecret], proves: Callable[[bytes], bool]) -> SigningSecret:
    """The secret that proves the delivery, or Rejected."""
    # All are tried, whichever matches, so that timing tells nothing of which one it was. An empty one proves nothing.
    matched = [secret for secret in secrets if secret.value and proves(secret.value)]
    if not matched:
        raise Rejected("no live secret matches" if secrets else "the source has no live secret")
    return matched[0]


def fresh_time(value: bytes, now: datetime) -> datetime:
    """The signed time, or Rejected: strictly a whole number of seconds, within five minutes of now."""
    if not UNIX_SECONDS.fullmatch(value):
        raise Rejected("the timestamp is missing or not a whole number of seconds")
    # Eleven digits end in the year 5138, so this cannot overflow.
    signed_at = datetime.fromtimestamp(int(value), UTC)
    if abs(now - signed_at) > TOLERANCE:
        raise Rejected(f"the timestamp is more than {in_words(TOLERANCE)} off")
    return signed_at
