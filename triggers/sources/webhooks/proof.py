"""Proof of a delivery: a secret that matches, compared in constant time, and a fresh timestamp."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from agents.kernel.durations import in_words

TOLERANCE = timedelta(minutes=5)
MATCH_NOTED_EVERY = timedelta(minutes=1)  # a secret's last match is written at most this often
MOST_UNPROVED = 2**20  # bytes of JSON that is parsed before anything is proved: a stranger's takes no seconds
UNIX_SECONDS = re.compile(rb"[0-9]{1,11}")


class Rejected(Exception):
    """The delivery is not authenticated. The reason is logged; the sender does not get it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True)
class SigningSecret:
    """A valid secret of a source in plain text, and its row."""

    id: int
    value: bytes = field(repr=False)
    last_matched_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Proof:
    """The secret that matched, and the signed time if the scheme has one."""

    secret: SigningSecret | None
    signed_at: datetime | None = None


def matching_secret(secrets: Sequence[SigningSecret], proves: Callable[[bytes], bool]) -> SigningSecret:
    """The secret that proves the delivery, or Rejected."""
    # Try all, so that the timing does not reveal which one matched. An empty secret proves nothing.
    matched = [secret for secret in secrets if secret.value and proves(secret.value)]
    if not matched:
        raise Rejected("no live secret matches" if secrets else "the source has no live secret")
    return matched[0]


def fresh_time(value: bytes, now: datetime, retried_for: timedelta = timedelta()) -> datetime:
    """The signed time, or Rejected: must be a whole number of seconds within TOLERANCE of now, and may be older by `retried_for`
    if the sender repeats a delivery with its first timestamp."""
    if not UNIX_SECONDS.fullmatch(value):
        raise Rejected("the timestamp is missing or not a whole number of seconds")
    # Eleven digits reach the year 5138, so this cannot overflow.
    signed_at = datetime.fromtimestamp(int(value), UTC)
    require_fresh(signed_at, now, retried_for)
    return signed_at


def require_fresh(signed_at: datetime, now: datetime, retried_for: timedelta = timedelta()) -> None:
    """Rejected if the signed time is too old, or in the future."""
    allowed = TOLERANCE if signed_at > now else TOLERANCE + retried_for
    if abs(now - signed_at) > allowed:
        raise Rejected(f"the timestamp is more than {in_words(allowed)} off")
