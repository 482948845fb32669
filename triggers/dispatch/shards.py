"""Shards: processes that dispatch the parts of a large batch at once, where one processor is not enough for dispatch
(WAKEFUL_DISPATCH_SHARDS).

1. The leader reads and matches a batch, in order, and divides it (`parts`).
2. Each shard dispatches its part in a transaction of its own, as a dispatcher does, but shares the dispatch lock with the others. So
   whatever takes this lock alone, such as another dispatcher or a resume, waits for shards too, also for those of a leader that died.
3. The leader waits for all of them, then dispatches the rest, and only then reads the next batch: the order per key is the order of
   arrival. Where shards of two leaders meet, the locks of events and keys decide, as between any two dispatchers.

Nothing is stored for it. Events of a part that fails, or whose shard dies, are undispatched as before; then the leader dispatches alone
for a moment, with the care that `failures` takes.
"""

import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Sequence, Set
from contextlib import suppress
from uuid import UUID

import structlog

from runs.processes.frames import receive, send
from triggers.dispatch.batch import Batch
from triggers.dispatch.parts import divide
from triggers.dispatch.rules import Rules
from triggers.dispatch.shard import HELLO, Request, dump, serve
from triggers.matching.match import Matched

log = structlog.get_logger(__name__)

# Like this process, it finds its settings by the environment.
START = f"""
import sys
number, socket, *sys.path = sys.argv[1:]
import django
django.setup()
from {serve.__module__} import serve
serve(int(number), int(socket))
"""
LEAST = 16  # events of a part: its transaction costs as much as ten events
PATIENCE = 10.0  # seconds for all parts; PostgreSQL ends the transaction of a frozen shard after five
ALONE = 1.0  # seconds without shards after a part has failed


class Shard:
    """One process, from the dispatcher's side."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-c", START, str(number), str(theirs.fileno()), *sys.path]
            self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self.is_ready = False

    def has_begun(self) -> bool:
        """Whether it has loaded what it needs; does not wait. OSError: it has ended."""
        if not self.is_ready:
            self.socket.settimeout(0)
            with suppress(BlockingIOError):
                if receive(self.socket) != HELLO:
                    raise ConnectionError
                self.is_ready = True
        return self.is_ready

    def ask(self, request: Request) -> None:
        """OSError: it has ended, or does not read."""
        self.socket.settimeout(PATIENCE)
        send(self.socket, pickle.dumps(tuple(request)))

    def answer(self, until: float) -> Batch | None:
        """What came of its part; None: it failed. OSError: it has ended, or gave no answer until then."""
        self.socket.settimeout(max(until - time.monotonic(), 0.001))
        found = receive(self.socket)
        if found is None:
            raise ConnectionError
        batch: Batch | None = pickle.loads(found)  # noqa: S301  (of a process of ours)
        return batch

    def close(self) -> None:
        self.socket.close()
        self.process.kill()
        self.process.wait()


class Shards:
    """The shards of this process, started when there is a batch for them."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.all: dict[int, Shard] = {}
        self.alone_until = 0.0

    def dispatch(self, rules: Rules, matched: Sequence[Matched], awaited: Set[UUID]) -> tuple[Batch, list[Matched]]:
        """Dispatch what can be by shards; returns the rest. Until they have begun, everything is the rest. `rules`: those that the
        events were matched with; `awaited`: events that runs wait for."""
        if time.monotonic() < self.alone_until or rules.version is None:
            return Batch(), list(matched)
        divided = divide(matched, awaited, most=self.most, least=LEAST)
        shards = self._begun(len(divided.parts))
        if len(shards) < len(divided.parts):
            divided = divide(matched, awaited, most=len(shards), least=LEAST)
        if not divided.parts:
            return Batch(), list(matched)
        asked = [
            (shard, len(part))
            for shard, part in zip(shards, divided.parts, strict=False)
            if self._is_asked(shard, Request(len(part), rules.version[0][:2], dump(part)))
        ]
        missing = sum(map(len, divided.parts)) - sum(events for _, events in asked)
        until = time.monotonic() + PATIENCE
        answers = [self._answer(shard, events, until) for shard, events in asked]
        return sum(answers, Batch(left=missing)), divided.rest

    def close(self) -> None:
        for shard in self.all.values():
            shard.close()
        self.all = {}

    def _begun(self, wanted: int) -> list[Shard]:
        """Those of the first `wanted` that have begun. Starts those that do not run."""
        begun = []
        for number in range(wanted):
            if number not in self.all:
                self.all[number] = Shard(number)
                log.info("dispatcher.shard_started", shard=number, pid=self.all[number].process.pid)
            try:
                if self.all[number].has_begun():
                    begun.append(self.all[number])
            except OSError:
                self._lost(self.all[number])
        return begun

    def _is_asked(self, shard: Shard, request: Request) -> bool:
        try:
            shard.ask(request)
        except OSError:
            self._lost(shard)
            return False
        return True

    def _answer(self, shard: Shard, events: int, until: float) -> Batch:
        try:
            batch = shard.answer(until)
        except OSError:
            self._lost(shard)
            batch = None
        if batch is None:
            self.alone_until = time.monotonic() + ALONE
            return Batch(left=events)
        return batch

    def _lost(self, shard: Shard) -> None:
        """End it, whatever it does: what it has not committed is undispatched."""
        log.warning("dispatcher.shard_lost", shard=shard.number, pid=shard.process.pid)
        shard.close()
        del self.all[shard.number]
        self.alone_until = time.monotonic() + ALONE
