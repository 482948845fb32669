"""What each leg of a wake costs PostgreSQL, in a process of its own: buffers, and CPU of the session."""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction
from django.test import Client

from bench.ground.pace import serve
from bench.probes import waits as waiting
from bench.probes.load import KILOBYTE, incoming
from bench.probes.scale import BATCHES, TIMES, WARM, Probe
from runs import outbox
from runs import waits as ends
from runs.executor import execute
from triggers.accept import accept
from triggers.api.tokens import ALL, create_token
from triggers.dispatch.batch import dispatch
from triggers.dispatch.looks import look
from triggers.dispatch.rules import Rules
from triggers.models import Trigger
from triggers.schedules.firing import due_schedules

BATCH = 100  # events
KILOBYTE["customer"] = "c3"
LISTS = {
    "Overview": "/admin/",
    "Inbox": "/admin/inbox/",
    "Upcoming": "/admin/coming/",
    "Runs": "/admin/runs/run/",
    "Failed runs": "/admin/runs/run/?status__exact=failed",
    "Waiting runs": "/admin/runs/run/?status__exact=waiting",
    "Events": "/admin/triggers/event/",
    "Triggers": "/admin/triggers/trigger/",
    "Schedules": "/admin/triggers/schedule/",
    "Notifications": "/admin/runs/notification/",
    "Audit log": "/admin/runs/auditentry/",
    "API: runs": "/api/v1/runs/",
    "API: events": "/api/v1/events/",
    "API: triggers": "/api/v1/triggers/",
    "API: schedules": "/api/v1/schedules/",
    "API: upcoming": "/api/v1/upcoming/",
}


class Growth(Probe):
    def __init__(self) -> None:
        super().__init__()
        self.cpu: dict[str, list[float]] = defaultdict(list)
        self.awaited = 1  # the next number that a run waits for
        # In this order: the first ones need an empty queue.
        legs = (
            self.events,
            self.sleeps,
            self.waits,
            self.batches,
            self.claims,
            self.along,
            self.looks,
            self.schedules,
            self.idle,
        )
        self.legs: dict[str, Callable[..., None]] = {leg.__name__: leg for leg in legs}

    def prepare(self, triggers: int) -> list[str]:
        """Just after a VACUUM, with nothing that is ready; the names of what is measured then."""
        add_triggers(triggers)
        while due_schedules.settle(limit=500):
            pass
        rules = Rules()
        while outbox.deliver_inside(500):
            pass
        while dispatch(rules).dispatched:
            pass
        self.drain()
        self.observer.execute("VACUUM (ANALYZE)")
        return [*self.legs, "lists"]

    def leg(self, name: str) -> None:
        if name == "lists":
            return self.lists()
        self.legs[name](WARM, warm=True)
        self.legs[name](BATCHES if name == "batches" else TIMES)

    def measure(self, what: str, call: Callable[[], Any]) -> Any:
        def timed() -> Any:
            before = self.seconds()
            try:
                return call()
            finally:
                self.cpu[what].append(self.seconds() - before)

        return super().measure(what, timed)

    def seconds(self) -> float:
        """CPU of the session's own process of the server."""
        return int(Path(f"/proc/{self.backend}/schedstat").read_text().split()[0]) / 1e9

    def summaries(self) -> dict[str, dict[str, float]]:
        return {what: seen | {"cpu_us": median(self.cpu[what]) * 1e6} for what, seen in super().summaries().items()}

    def events(self, count: int, *, warm: bool = False) -> None:
        """Alone, of a type that one trigger wants."""
        rules = Rules()
        for _ in range(count):
            event = incoming("bench.noop", str(time.time_ns()))
            self.measure_unless(warm, "an event is accepted", partial(accept, [event]))
            self.measure_unless(warm, "dispatch of one event", partial(dispatch, rules))
            self.claims(1, warm=True)

    def batches(self, count: int, *, warm: bool = False) -> None:
        rules = Rules()
        for _ in range(count):
            tag = time.time_ns()
            with transaction.atomic():
                accept([incoming("bench.noop", f"{tag}-{number}") for number in range(BATCH)])
            batch = self.measure_unless(warm, f"dispatch of {BATCH} events", partial(dispatch, rules))
            assert batch.dispatched == BATCH, batch

    def sleeps(self, count: int, *, warm: bool = False) -> None:
        rules = Rules()
        for _ in range(count):
            accept([replace(incoming("bench.sleeper", str(time.time_ns())), data={"count": 1, "microseconds": 0})])
            dispatch(rules)
            execute(self.claimed())
            ended = self.measure_unless(warm, "a wait ends by time", partial(ends.end_due, 500))
            assert ended.runs == 1
            execute(self.claimed())

    def waits(self, count: int, *, warm: bool = False) -> None:
        rules = Rules()
        for _ in range(count):
            waiting.look(self, rules, self.awaited, warm=warm)
            self.awaited += 3

    def claimed(self) -> Any:
        claim = self.claim()
        assert claim
        return claim

    def schedules(self, count: int, *, warm: bool = False) -> None:
        """The next that comes due, at the instant at which it does."""
        for _ in range(count):
            found = self.measure_unless(warm, "look for due schedules", due_schedules.find_due)
            assert found.next_due
            assert (
                self.measure_unless(warm, "a schedule fires", partial(due_schedules.fire_due, found.next_due, 1)) == 1
            )

    def idle(self, count: int, *, warm: bool = False) -> None:
        for _ in range(count):
            self.measure_unless(warm, "idle look", partial(look, asks_for_events=True))

    def drain(self) -> None:
        """Execute what is ready: some legs need an empty queue."""
        claim = self.claim()
        while claim:
            claim = execute(claim, self.next) or self.claim()

    def lists(self) -> None:
        client = Client(SERVER_NAME="localhost")
        user, _ = get_user_model().objects.get_or_create(username="bench", is_superuser=True, is_staff=True)
        client.force_login(user)
        _, token = create_token(f"bench-{time.time_ns()}", [ALL], by="bench")
        headers = {"Authorization": f"Bearer {token}"}
        for what, path in LISTS.items():
            for number in range(WARM // 2 + 5):
                answer = self.measure_unless(number <= WARM // 2, what, partial(client.get, path, headers=headers))
                assert answer.status_code == 200, (path, answer.status_code)


def add_triggers(count: int) -> None:
    """Others that cannot match an event of the legs: half of them of its type."""
    there = Trigger.objects.filter(slug__startswith="other-").count()
    Trigger.objects.bulk_create(
        (Trigger(
            slug=f"other-{number}", agent="bench.noop", types=["bench.noop" if number % 2 else f"bench.{number}.*"],
            filter=f'event.data.customer == "x{number}" && event.data.amount > 100',
        )
        for number in range(there, count)),
        batch_size=1000,
    )  # fmt: skip


if __name__ == "__main__":
    probe = Growth()
    serve({"prepare": probe.prepare, "leg": probe.leg, "summaries": probe.summaries})
