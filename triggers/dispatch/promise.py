"""The dispatcher's promise to look: writers of watched tables that see it commit without a NOTIFY, which would make them commit one
after the other (`triggers_nudge_at_commit` in the migrations).

A promise is made when NOTIFYs come faster than the dispatcher looks, and withdrawn before it sleeps. A transaction that has relied on it
holds a shared lock until its commit is visible. So after a withdrawal that finds no such lock, one more look finds all of them.

Nor do they send a NOTIFY while no dispatcher listens. Before it sleeps, each notes until when it listens.
"""

import time

from django.conf import settings

from runs.db.sql import fetch

RELIED_ON = (0x57AC, 3)  # as in the function of the migrations
LASTS = 1.0  # seconds; if the dispatcher dies, transactions notify again after this
RENEW_EVERY = 0.5  # seconds
MAKE = "SELECT setval('triggers_looks_until', (extract(epoch FROM clock_timestamp()) * 1000)::bigint + %s::bigint)"
LISTEN = "setval('triggers_listens_until', (extract(epoch FROM clock_timestamp()) * 1000)::bigint + %s::bigint)"
# In this order: a transaction that comes after the first two notifies.
WITHDRAW = f"""
SELECT CASE WHEN {LISTEN} > 1 AND setval('triggers_looks_until', 1) = 1 THEN pg_try_advisory_xact_lock(%s::int, %s::int) END
"""  # noqa: S608  (our own parts)


def listens_for() -> int:
    """Milliseconds, for LISTEN: a sleeping dispatcher notes it again after the safety look."""
    return round((3 * settings.WAKEFUL_SAFETY_LOOK.total_seconds() + 30) * 1000)


class Promise:
    """`is_open`: this dispatcher, or one before it, may have promised to look."""

    def __init__(self) -> None:
        self.is_open = True
        self.made_at = float("-inf")

    def make(self) -> None:
        """Or renew it."""
        if time.monotonic() - self.made_at < RENEW_EVERY:
            return
        self.is_open, self.made_at = True, time.monotonic()
        fetch(MAKE, [round(LASTS * 1000)])

    def withdraw(self) -> bool:
        """False: commits of transactions that have relied on it are under way. Call it again soon."""
        self.made_at = float("-inf")
        [(none_is_under_way,)] = fetch(WITHDRAW, [listens_for(), *RELIED_ON])
        self.is_open = not none_is_under_way
        return not self.is_open
