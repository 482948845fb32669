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
from typing import Any
from uuid import UUID

import structlog

from agents.kernel.backoff import backoff
from runs.db.poll import readable
from runs.processes.failing import Failing
from runs.processes.frames import receive, send
from triggers.dispatch.batch import Batch
from triggers.dispatch.parts import divide
from triggers.dispatch.rules import Rules
from triggers.dispatch.shard import FORMAT, Request, dump, serve
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
START_WITHIN = 60.0  # seconds
PATIENCE = 10.0  # seconds for all parts; PostgreSQL ends the transaction of a frozen shard after five
# Seconds without shards after one has failed, or has done so again and again.
ALONE, LONGEST_ALONE = 1.0, 60.0
TROUBLE = 3  # failures in a row that `doctor` and the console report
FORGOTTEN = 600.0  # seconds without a large batch after which they report it no longer
WORK = "dispatch by shards"


class ShardFailed(Exception):
    pass


class Shard:
    """One process, from the dispatcher's side."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.socket, theirs = socket.socketpair()
        with theirs:
            words = [sys.executable, "-c", START, str(number), str(theirs.fileno()), *sys.path]
            try:
                self.process = subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
            except OSError:
                self.socket.close()
                raise
        self.started_at = time.monotonic()
        self.is_ready = False

    def has_begun(self) -> bool:
        """Whether it has loaded what it needs; does not wait. OSError: it has ended, loads for too long, or its code is of another
        version."""
        if not self.is_ready and readable([self.socket.fileno()], 0):
            self.socket.settimeout(PATIENCE)
            if receive(self.socket) != FORMAT:
                raise ConnectionError
            self.is_ready = True
        if not self.is_ready and time.monotonic() - self.started_at > START_WITHIN:
            raise TimeoutError
        return self.is_ready

    def ask(self, request: Request, until: float) -> None:
        """OSError: it has ended, or does not read."""
        self.socket.settimeout(max(until - time.monotonic(), 0.001))
        send(self.socket, pickle.dumps(tuple(request)))

    def answer(self, until: float) -> Batch | None:
        """What came of its part; None: it failed. OSError: it has ended, or gave no answer until then."""
        self.socket.settimeout(max(until - time.monotonic(), 0.001))
        found = receive(self.socket)
        if found is None:
            raise ConnectionError
        batch: Batch | None = pickle.loads(found)  # noqa: S301  (of a process of ours)
        return batch

    def end(self, within: float = 0.0) -> None:
        """It ends by itself once its socket is closed, after the part that it dispatches; kill it where that takes longer."""
        self.socket.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(within)
        self.process.kill()
        self.process.wait()


class Shards:
    """The shards of this process, started when there is a batch for them."""

    def __init__(self, most: int, failing: Failing) -> None:
        self.most = most
        self.failing = failing
        self.all: dict[int, Shard] = {}
        self.has_failed = False  # a part of this batch
        self.failures: dict[int, int] = {}  # of each shard, in a row
        self.reason = ""  # of the last failure
        self.alone_until = 0.0

    def dispatch(self, rules: Rules, matched: Sequence[Matched], awaited: Set[UUID]) -> tuple[Batch, list[Matched]]:
        """Dispatch what can be by shards; returns the rest. Until they have begun, everything is the rest. `rules`: those that the
        events were matched with; `awaited`: events that runs wait for."""
        if time.monotonic() < self.alone_until or rules.version is None:
            return Batch(), list(matched)
        self.has_failed = False
        divided = divide(matched, awaited, most=self.most, least=LEAST)
        shards = self._begun(len(divided.parts))
        if len(shards) < len(divided.parts):
            divided = divide(matched, awaited, most=len(shards), least=LEAST)
        try:
            batch = self._dispatch(divided.parts, shards, rules.version[0][:2])
        except BaseException:
            self.close()  # an answer that was not read would be taken for that of the next part
            raise
        if self.has_failed:
            failures = max(self.failures.values())
            self.alone_until = time.monotonic() + backoff(ALONE, LONGEST_ALONE, failures)
            if failures >= TROUBLE:
                self.failing.failed(WORK, ShardFailed(self.reason))
        elif divided.parts or time.monotonic() - self.alone_until > FORGOTTEN:
            self.failing.succeeded(WORK)
        return batch, divided.rest

    def _dispatch(self, parts: Sequence[Sequence[Matched]], shards: Sequence[Shard], version: Sequence[Any]) -> Batch:
        until = time.monotonic() + PATIENCE
        requests = [Request(len(part), version, dump(part)) for part in parts]
        asked = [self._is_asked(shard, request, until) for shard, request in zip(shards, requests, strict=False)]
        batch = Batch()
        for shard, request, is_asked in zip(shards, requests, asked, strict=False):
            answer = self._answer(shard, until) if is_asked else None
            batch += Batch(left=request.events) if answer is None else answer
        return batch

    def close(self, within: float = 0.0) -> None:
        """End all of them, within so many seconds."""
        until = time.monotonic() + within
        for shard in self.all.values():
            shard.socket.close()
        for shard in self.all.values():
            shard.end(max(until - time.monotonic(), 0.0))
        self.all = {}

    def _begun(self, wanted: int) -> list[Shard]:
        """Those of the first `wanted` that have begun. Starts those that do not run."""
        begun = []
        for number in range(wanted):
            if number not in self.all and not self._has_started(number):
                break
            try:
                if self.all[number].has_begun():
                    begun.append(self.all[number])
            except OSError:
                self._lost(self.all[number])
        return begun

    def _has_started(self, number: int) -> bool:
        try:
            self.all[number] = Shard(number)
        except OSError as error:
            log.warning("dispatcher.shard_not_started", shard=number, exc_info=True)
            self._failed(number, f"the process cannot be started: {error}")
            return False
        log.info("dispatcher.shard_started", shard=number, pid=self.all[number].process.pid)
        return True

    def _is_asked(self, shard: Shard, request: Request, until: float) -> bool:
        try:
            shard.ask(request, until)
        except OSError:
            self._lost(shard)
            return False
        return True

    def _answer(self, shard: Shard, until: float) -> Batch | None:
        try:
            batch = shard.answer(until)
        except OSError:
            self._lost(shard)
            return None
        if batch is None or not batch.has_progressed:  # the dispatcher may: it matches again under the dispatch lock
            log.warning("dispatcher.shard_dispatched_nothing", shard=shard.number, has_failed=batch is None)
            self._failed(shard.number, "it dispatched nothing of its part")
        else:
            self.failures.pop(shard.number, None)
        return batch

    def _failed(self, number: int, reason: str) -> None:
        self.failures[number] = self.failures.get(number, 0) + 1
        self.has_failed, self.reason = True, reason

    def _lost(self, shard: Shard) -> None:
        """End it, whatever it does: what it has not committed is undispatched."""
        status = shard.process.poll()  # negative for a signal
        log.warning("dispatcher.shard_lost", shard=shard.number, pid=shard.process.pid, exit_status=status)
        shard.end()
        del self.all[shard.number]
        how = "it did not answer, or has other code" if status is None else f"it ended with exit status {status}"
        self._failed(shard.number, how)
