"""The dispatcher's promise to look: writers of watched tables that see it commit without a NOTIFY, which would make them commit one
after the other (`triggers_nudge_at_commit` in the migrations).

A promise is made when changes of watched tables come faster than the dispatcher looks, and withdrawn before it sleeps. A transaction that
has relied on it holds a shared lock until its commit is visible. So after a withdrawal that finds no such lock, one more look finds all
of them.

Nor do they send a NOTIFY while no dispatcher listens. Before it sleeps, each notes until when it listens.
"""

import time

from django.conf import settings

from runs.db.sql import fetch

RELIED_ON = (0x57AC, 3)  # as in the function of the migrations
LASTS = 1.0  # seconds; if the dispatcher dies, transactions notify again after this
RENEW_EVERY = 0.5  # seconds
KEEP_LOOKING = 0.05  # seconds after the last event or NOTIFY
LOOK_EVERY = 0.01
CHANGES = 1.0  # seconds after the last change of a watched table, for which a promise is kept
UNDER_WAY = 0.25  # seconds between two looks while a commit that sends no NOTIFY takes long
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
        self.look_until = 0.0
        self.changed_at = float("-inf")

    def after_look(self, *, has_news: bool, has_changes: bool, leads: bool, stands_by: bool) -> float | None:
        """Make, renew or withdraw the promise. Returns the seconds until the next look; None: it owes none.

        `has_news`: events were dispatched, or a NOTIFY asks for a look at once; `has_changes`: some were changes of watched tables."""
        now = time.monotonic()
        was_looking = now < self.look_until
        if has_changes:
            self.changed_at = now
        if has_news:
            self.look_until = now + KEEP_LOOKING
        may_promise = now - self.changed_at < CHANGES
        if was_looking and leads and may_promise and (has_news or self.is_open):
            self.make()
        if self.is_open and may_promise and now < self.look_until:
            return LOOK_EVERY
        if stands_by:
            self.is_open = True  # the leader's, which may die
            return None
        if self.is_open:
            # Commits that have relied on it may have come since the look, or are under way.
            return 0.0 if self.withdraw() else UNDER_WAY
        return None

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
