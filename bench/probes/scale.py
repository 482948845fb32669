"""What the product's own calls touch, in a process of its own: `growth` or `claims COUNT`; JSON to standard output.

PostgreSQL counts the buffers of each backend (`pg_stat_get_backend_io`, from version 18 on): those of this process's
session are the calls' own, prepared statements, planning and all.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import django
import psycopg
from django.conf import settings

django.setup()

from django.contrib.auth import get_user_model  # noqa: E402
from django.db import connection, transaction  # noqa: E402
from django.test import Client  # noqa: E402

from agents import registry  # noqa: E402
from bench.ground.pace import await_word  # noqa: E402
from bench.probes.load import incoming  # noqa: E402
from runs.chores import timers  # noqa: E402
from runs.claim import Along, Claim, claim_along, claim_next  # noqa: E402
from runs.db.sql import fetch  # noqa: E402
from runs.executor import execute  # noqa: E402
from runs.models import Run, Worker  # noqa: E402
from runs.outbox import deliver_inside  # noqa: E402
from runs.processes import lease  # noqa: E402
from runs.processes.rescue import Rescuer  # noqa: E402
from runs.queues import doorbell  # noqa: E402
from triggers.accept import accept  # noqa: E402
from triggers.dispatch.batch import dispatch  # noqa: E402
from triggers.dispatch.looks import read_dispatch_timers  # noqa: E402
from triggers.dispatch.rules import Rules  # noqa: E402
from triggers.models import Trigger  # noqa: E402

QUEUE = "default"
WARM = 12  # calls of each sort before any counts: from the sixth on PostgreSQL has settled on a plan
TIMES = 100
BATCHES = 10
AFTER_VACUUM = 2_000  # runs
PAGES = {
    "Overview": "/admin/",
    "Runs": "/admin/runs/run/",
    "Failed runs": "/admin/runs/run/?status__exact=failed",
    "Running runs": "/admin/runs/run/?status__exact=running",
    "Ready runs": "/admin/runs/run/?place=ready",
    "Runs of an agent": "/admin/runs/run/?agent=bench.noop",
    "Runs, page 100": "/admin/runs/run/?p=100",
    "A run": "/admin/runs/run/{run}/change/",
    "Events": "/admin/triggers/event/",
    "Undispatched events": "/admin/triggers/event/?state=undispatched",
    "An event": "/admin/triggers/event/{event}/change/",
    "Triggers": "/admin/triggers/trigger/",
    "A trigger, its runs and decisions": "/admin/triggers/trigger/{trigger}/change/",
    "Processes": "/admin/runs/queue/processes/",
    "Notifications": "/admin/runs/notification/",
    "Audit log": "/admin/runs/auditentry/",
}
SEARCHES = {
    "Runs, search for a run's id": "/admin/runs/run/?q={run}",
    "Runs, search for a trigger": "/admin/runs/run/?q={slug}",
    "Events, search for an id": "/admin/triggers/event/?q={event}",
    "Events, search for a type": "/admin/triggers/event/?q=past.1",
}

TOUCHED = "SELECT sum(coalesce(hits, 0) + coalesce(reads, 0))::bigint FROM pg_stat_get_backend_io(%s) WHERE object = 'relation'"


@dataclass
class Seen:
    """Buffers and seconds of one call after the other."""

    buffers: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float]:
        ordered = sorted(self.seconds)
        return {
            "calls": len(ordered),
            "buffers": median(self.buffers),
            "most_buffers": max(self.buffers),
            "ms": median(ordered) * 1e3,
            "p99_ms": ordered[max(0, -int(-len(ordered) * 0.99 // 1) - 1)] * 1e3,
        }


class Probe:
    def __init__(self) -> None:
        self.seen: dict[str, Seen] = {}
        self.observer = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
        [(self.backend,)] = fetch("SELECT pg_backend_pid()")
        self.agents = {agent.name: agent.version for agent in registry.all_agents()}
        self.worker = lease.open_row(Worker.Kind.WORKER, concurrency=2, agents=list(self.agents), queues=[QUEUE])

    def touched(self) -> int:
        connection.cursor().execute("SELECT pg_stat_force_next_flush()")
        found = self.observer.execute(TOUCHED, [self.backend]).fetchone()
        assert found
        return int(found[0])

    def measure(self, what: str, call: Callable[[], Any]) -> Any:
        before = self.touched()
        began = time.perf_counter()
        answer = call()
        seconds = time.perf_counter() - began
        seen = self.seen.setdefault(what, Seen())
        seen.buffers.append(self.touched() - before)
        seen.seconds.append(seconds)
        return answer

    def summaries(self) -> dict[str, dict[str, float]]:
        return {what: seen.summary() for what, seen in self.seen.items()}

    # What is measured

    def queue(self, times: int) -> None:
        self.claims(WARM, warm=True)
        self.claims(times)
        self.looks(WARM, warm=True)
        self.looks(WARM)

    def growth(self) -> None:
        # No parallel helpers: their buffers would be counted elsewhere.
        connection.cursor().execute("SET max_parallel_workers_per_gather = 0")
        self.dispatch(WARM, warm=True)
        self.dispatch(BATCHES)
        self.claims(WARM, warm=True)
        self.claims(TIMES)
        self.along(WARM, warm=True)
        self.along(TIMES)
        self.looks(WARM, warm=True)
        self.looks(TIMES)
        self.long_after_vacuum(AFTER_VACUUM)
        self.pages()

    def dispatch(self, batches: int, *, warm: bool = False) -> None:
        """Full batches."""
        rules = Rules()
        size = settings.WAKEFUL_DISPATCH_BATCH
        for _ in range(batches):
            tag = time.time_ns()
            with transaction.atomic():
                accept([incoming("bench.noop", f"{tag}-{number}") for number in range(size)])
            batch = self.measure_unless(warm, f"dispatch of {size}", lambda: dispatch(rules))
            assert batch.dispatched == size, batch

    def claims(self, count: int, *, warm: bool = False) -> None:
        for _ in range(count):
            claim: Claim = self.measure_unless(warm, "claim", self.claim)
            assert claim
            self.measure_unless(warm, "finish", partial(execute, claim))

    def along(self, count: int, *, warm: bool = False) -> None:
        """As a busy child goes on: the next claim is made in the commit that ends the run before."""
        claim = self.claim()
        for _ in range(count):
            assert claim
            claim = self.measure_unless(warm, "finish and the next claim in one", partial(execute, claim, self.next))
        assert claim
        execute(claim)

    def next(self) -> Along:
        return claim_along(self.worker, QUEUE, self.agents)

    def long_after_vacuum(self, runs: int) -> None:
        """Whatever was claimed stays at the head of the index of ready runs until the next VACUUM."""
        self.along(runs, warm=True)
        for _ in range(TIMES):
            claim: Claim = self.measure(f"claim, {runs:,} runs after the VACUUM", self.claim)
            execute(claim)

    def claim(self) -> Claim | None:
        return claim_next(self.worker, QUEUE, self.agents)

    def looks(self, count: int, *, warm: bool = False) -> None:
        rules, rescuer = Rules(), Rescuer()
        rescuer.away_until = float("-inf")  # it has seen a whole lease
        while deliver_inside(500):
            pass
        clock = lease.Clock()
        for _ in range(count):
            self.measure_unless(warm, "look for events", lambda: dispatch(rules))
            self.measure_unless(warm, "look for windows", read_dispatch_timers)
            self.measure_unless(warm, "look of the timers", timers.read_run_timers)
            self.measure_unless(warm, "look of the relay", lambda: doorbell.read_wanted(None))
            self.measure_unless(warm, "look of the rescue", rescuer.rescue)
            self.measure_unless(warm, "renewal of the lease", lambda: lease.renew(self.worker, clock))

    def pages(self) -> None:
        client = Client(SERVER_NAME="localhost")
        user = get_user_model().objects.create_superuser("bench", password="bench")
        client.force_login(user)
        middle = Run.objects.filter(status="failed").order_by("-id")[50]
        names = {
            "run": middle.pk,
            "event": middle.event_ids[0],
            "trigger": Trigger.objects.get(agent="bench.noop").pk,
            "slug": "past-1",
        }
        for what, path in {**PAGES, **SEARCHES}.items():
            address = path.format(**names)
            for number in range(WARM // 2 + 5):
                answer = self.measure_unless(number <= WARM // 2, what, lambda: client.get(address))  # noqa: B023
                assert answer.status_code == 200, (address, answer.status_code)

    def measure_unless(self, warm: bool, what: str, call: Callable[[], Any]) -> Any:
        return call() if warm else self.measure(what, call)


def main() -> None:
    command, *arguments = sys.argv[1:]
    probe = Probe()
    await_word()
    if command == "growth":
        probe.growth()
    else:
        probe.queue(int(arguments[0]))
    lease.close_row(probe.worker, "measured")
    json.dump(probe.summaries(), sys.stdout)


if __name__ == "__main__":
    main()
