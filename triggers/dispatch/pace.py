"""When the dispatcher's look asks for what is rare: at each safety look, and once in two while it rests.

It rests once nothing has moved for some safety looks and nothing rare waits. Then a NOTIFY, or a time that falls due, ends its sleep as
before; only what no NOTIFY announces waits for twice as long."""

import time

from django.conf import settings

from runs.chores.rare import Rare
from runs.processes.lease import rest

IDLE_LOOKS = 6  # safety looks without work, after which it rests
EARLY = 0.9  # a look that comes this near to the next safety look, such as one at the end of a lease, stands for it


class Pace:
    def __init__(self) -> None:
        self.moved_at = time.monotonic()
        self.ask_at = self.may_ask_at = 0.0

    @property
    def asks(self) -> bool:
        return time.monotonic() >= self.may_ask_at

    def asked(self, found: Rare | None) -> None:
        """Call after a look that has asked for it."""
        safety = settings.WAKEFUL_SAFETY_LOOK
        is_idle = time.monotonic() - self.moved_at > IDLE_LOOKS * safety.total_seconds()
        rests = is_idle and found is not None and not found.is_waited_for
        pause = (rest() if rests else safety).total_seconds()
        self.ask_at, self.may_ask_at = time.monotonic() + pause, time.monotonic() + pause * EARLY

    def moved(self) -> None:
        self.moved_at = time.monotonic()

    @property
    def wait(self) -> float:
        """The seconds until the next look that asks for it."""
        return max(self.ask_at - time.monotonic(), 0.0)
