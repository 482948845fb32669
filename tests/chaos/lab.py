"""The stack that seeds are played on. It stays up from seed to seed; only what a fault has killed is started again."""

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.rows import dict_row

from config.health.verify import Invariant, Report, invariants_in, verify
from config.stack import embedded
from tests.chaos.load import Delivery, History, Senders
from tests.support.moved_clock import MovedClock, can_move_clocks
from tests.support.points import Points
from tests.support.receiver import Receiver, receiving
from tests.support.servers import servers_for_tests
from tests.support.stack import Process, Stack, migrate

USERAPPS = Path(__file__).parents[1] / "userapps"
LAB = "lab"
SIGNED = {"header": "X-Signature", "template": "{body}", "id_path": "id", "type_path": "type"}
# A seed takes seconds where a lease does; `DEFAULT` keeps the settings as they are shipped.
DEFAULT = {"WAKEFUL_SHUTDOWN_GRACE": "1s", "LAB_PATCHES": "hasty_outbox"}
FAST = {**DEFAULT, "WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "0.75s", "WAKEFUL_SAFETY_LOOK": "2s"}
KINDS = ("web", "beat", "dispatcher", "worker")
ALONE = {"web": 1, "beat": 1, "dispatcher": 1, "worker": 2}
IN_PAIRS = {"web": 1, "beat": 2, "dispatcher": 2, "worker": 2}

LEFT = """
SELECT (SELECT count(*) FROM triggers_event WHERE dispatched_at IS NULL)
     + (SELECT count(*) FROM triggers_redispatch WHERE dispatched_at IS NULL)
     + (SELECT count(*) FROM triggers_window)
     + (SELECT count(*) FROM runs_run WHERE status IN ('queued', 'running'))
     + (SELECT count(*) FROM runs_outboxmessage)
     + (SELECT count(*) FROM runs_run WHERE status = 'waiting' AND agent = ANY (%s))
     + (SELECT count(*) FROM triggers_schedule schedule JOIN django_celery_beat_periodictask task ON task.id = schedule.task_id
        WHERE schedule.next_fire_at IS NOT NULL AND task.expires IS NOT NULL)
"""


DONE = """
SELECT (SELECT count(*) FROM lab_effect WHERE began_at >= %(since)s) AS effects,
       (SELECT count(*) FROM runs_step WHERE started_at >= %(since)s AND status = 'done' AND effect <> 'value') AS steps,
       (SELECT count(*) FROM runs_wait WHERE ended_at >= %(since)s AND status <> 'closed') AS "waits that ended",
       (SELECT count(*) FROM runs_approval WHERE decided_at >= %(since)s) AS "approvals decided",
       (SELECT count(*) FROM runs_run WHERE created_at >= %(since)s AND parent_id IS NOT NULL) AS "children",
       (SELECT count(*) FROM runs_auditentry WHERE at >= %(since)s AND action = 'resolve') AS "uncertain runs resolved"
"""
UNCERTAIN = """
SELECT runs_run.id, step.key FROM runs_run LEFT JOIN runs_step step ON step.run_id = runs_run.id AND step.status = 'started'
WHERE runs_run.status = 'uncertain'
"""
# The lab's own agents wait for seconds; a user's may wait for days.
WAITING = ["stepping", "patient", "asking", "family", "sprout"]


class Lab:
    """A stack, the failpoints of its processes, and a supervisor that starts again what has died."""

    def __init__(
        self, stack: Stack, *, own: Sequence[Invariant], is_lab: bool, crew: Mapping[str, int], receiver: Receiver
    ) -> None:
        self.stack = stack
        self.receiver = receiver
        self.noted: Counter[str] = Counter()  # calls that are written down, by path
        self.own = own
        self.is_lab = is_lab
        self.crew = crew
        self.points = {kind: Points(stack.folder / "points" / kind) for kind in KINDS}
        self.history = History(stack.folder / "history.jsonl")
        self.secret = b""
        self.restarts = 0
        self.keep_down: set[Process] = set()
        self.lease = timedelta(seconds=float(stack.env.get("WAKEFUL_LEASE", "8s").rstrip("s")))

    # Its processes

    def start(self) -> None:
        started = [self.begin(kind) for kind, count in self.crew.items() for _ in range(count)]
        for process in started:
            process.wait_ready(60)

    def begin(self, kind: str, env: Mapping[str, str] | None = None) -> Process:
        """One more process; it is not waited for."""
        return self.stack.start(kind, concurrency=2, env={**self.points[kind].env, **(env or {})}, wait=False)

    def of(self, kind: str) -> list[Process]:
        return [process for process in self.stack.processes if process.kind == kind]

    def tend(self) -> None:
        """Start again what has died, as systemd would."""
        for process in self.stack.processes:
            if not process.is_alive() and process not in self.keep_down:
                process.kill()  # what it may have left behind
                process.restart(wait=False)
                self.restarts += 1

    def dismiss(self, processes: Sequence[Process]) -> None:
        """End processes that a seed had added."""
        for process in processes:
            process.kill()
            self.stack.processes.remove(process)

    def wait_ready(self) -> None:
        for process in self.stack.processes:
            give_up_at = time.monotonic() + 60
            while time.monotonic() < give_up_at:
                self.tend()
                with suppress(psycopg.Error):
                    if process.is_ready():
                        break
                time.sleep(0.1)
            else:
                process.wait_ready(1)

    def who_runs(self, run: Mapping[str, Any]) -> Process | None:
        """The worker that has a run."""
        [worker] = self.stack.query("SELECT pid FROM runs_worker WHERE id = %s", run["worker_id"]) or [{"pid": 0}]
        return next((process for process in self.of("worker") if process.pid == worker["pid"]), None)

    # Its database

    def now(self) -> datetime:
        at: datetime = self.stack.query("SELECT clock_timestamp() AS at")[0]["at"]
        return at

    def left(self) -> int:
        """How much is still to be done; -1 while the database is away."""
        try:
            return int(next(iter(self.stack.query(LEFT, WAITING if self.is_lab else [])[0].values())))
        except psycopg.Error:
            return -1

    def wait_until(self, look: Callable[[], Any], timeout: float) -> Any:
        """What `look` returns once it is true, while the dead are restarted; None after the timeout."""
        give_up_at = time.monotonic() + timeout
        while time.monotonic() < give_up_at:
            with suppress(psycopg.Error):
                if seen := look():
                    return seen
            self.tend()
            time.sleep(0.05)
        return None

    def drained(self, timeout: float) -> bool:
        return bool(self.wait_until(lambda: self.left() == 0, timeout))

    def uncertain(self) -> list[dict[str, Any]]:
        """Runs that need a person, with the step that is unproved."""
        return self.stack.query(UNCERTAIN) if self.is_lab else []

    def note_calls(self) -> None:
        """Write down the calls of the receiver since the last time."""
        for path, calls in list(self.receiver.calls.items()):
            for key, body in calls[self.noted[path] :]:
                run, _, step = key.partition(":")
                note = "INSERT INTO lab_call (path, run, step, said) VALUES (%s, %s, %s, %s)"
                self.stack.query(note, path, run, step, json.dumps(body))
                self.noted[path] += 1

    def verify(self, since: datetime | None) -> Report:
        self.note_calls()
        with self.stack.orm():
            return verify(since=since, drained=True, accepted=self.history.accepted(), own=self.own)

    def done(self, since: datetime) -> dict[str, int]:
        """What the lab's agents have done; what a user's agents have is for his invariants to count."""
        if not self.is_lab:
            return {}
        with psycopg.connect(self.stack.database_url, row_factory=dict_row) as connection:
            return dict(connection.execute(DONE, {"since": since}).fetchone() or {})

    # What is sent to it

    def senders(self, seed: int) -> Senders:
        return Senders(stack=self.stack, history=self.history, seed=seed, secret=self.secret, since=self.now())

    def running(self, agent: str, timeout: float = 15) -> dict[str, Any] | None:
        """A run of an agent that a worker executes."""
        query = "SELECT * FROM runs_run WHERE status = 'running' AND agent = %s ORDER BY claimed_at DESC LIMIT 1"
        found = self.wait_until(lambda: self.stack.query(query, agent), timeout)
        return dict(found[0]) if found else None

    def prepare(self) -> None:
        """Triggers, and what the load needs besides."""
        self.stack.manage("sync_agents")
        with self.stack.orm():
            from django_celery_beat.models import PeriodicTask

            from runs.models import Queue
            from triggers.api.tokens import ensure_token
            from triggers.models import Source, Trigger
            from triggers.sources.secrets import rotate

            # A user's schedules would go on firing while it is to be found that nothing is left to do.
            PeriodicTask.objects.update(enabled=False)
            ensure_token("chaos", self.stack.env["WAKEFUL_API_TOKEN"], ["*"])
            if self.is_lab:
                source = Source.objects.create(slug="lab", kind="hmac", settings=SIGNED)
                self.secret = rotate(source, by="chaos").encode()
                Trigger.objects.create(slug="tick", agent="tick", overlap="allow")
                Trigger.objects.update(policy=_hastier())
                Queue.objects.create(name="narrow", max_running=1)

    def make_ticks(self, seed: int, seconds: int) -> None:
        """A schedule that fires every second and catches everything up, and an ordinary periodic task."""
        with self.stack.orm():
            from django.db import transaction
            from django_celery_beat.models import IntervalSchedule, PeriodicTask

            from triggers.models import Trigger
            from triggers.schedules import edit
            from triggers.schedules.rules.interval import Interval
            from triggers.schedules.terms.policy import SchedulePolicy

            with transaction.atomic():
                trigger = Trigger.objects.get(slug="tick")
                name = f"tick-{seed}-{uuid4().hex[:6]}"
                policy, rule = SchedulePolicy(catch_up="all"), Interval.parse("1s")
                made = edit.create_schedule(name=name, trigger=trigger, rule=rule, policy=policy, by="chaos")
                ends_at = made.edited_at + timedelta(seconds=seconds)
                PeriodicTask.objects.filter(pk=made.task_id).update(expires=ends_at)
                every, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
                PeriodicTask.objects.create(
                    name=f"note-{name}", task="lab.tasks.note", interval=every, queue="wakeful", expires=ends_at
                )

    def emit(self, senders: Senders, type: str, **data: Any) -> str:
        """One more event, once it is accepted; its id."""
        return senders.until_accepted(Delivery(id=f"{senders.seed}-{uuid4()}", type=type, data=data, door="api"))


def _hastier() -> Any:
    """A backoff of 0.2 s instead of one, and an event for each end."""
    from django.db.models import F, JSONField, Value
    from django.db.models.expressions import CombinedExpression

    policy = {"backoff": 0.2, "reports": [{"on": "end", "event": True}]}
    return CombinedExpression(F("policy"), "||", Value(policy, JSONField()), output_field=JSONField())


@contextmanager
def lab(
    folder: Path,
    *,
    settings: Mapping[str, str] = FAST,
    crew: Mapping[str, int] = IN_PAIRS,
    apps: str = LAB,
    invariants: Path | None = None,
    blocker: Any = None,
) -> Iterator[Lab]:
    """A running lab on servers of its own; `apps` and `invariants` of a user instead of ours."""
    is_lab = apps == LAB
    # Deliveries are recorded together in the one sort of stack, each by itself in the other.
    settings = {"WAKEFUL_INGEST_SESSIONS": "2" if crew == IN_PAIRS else "0", **settings}
    env = {**settings, "WAKEFUL_APPS": apps, "WAKEFUL_MAX_BACKLOG": "100000", "WAKEFUL_QUEUES": "default,narrow"}
    env["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(USERAPPS) if is_lab else "", os.environ.get("PYTHONPATH", "")])
    )
    if not is_lab:
        env.pop("LAB_PATCHES", None)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with servers_for_tests(given={}) as servers, receiving() as receiver:
        env["LAB_RECEIVER"] = receiver.address
        stack = Stack(
            folder,
            database_url=servers.database_url,
            redis_url=servers.redis_url,
            env=env,
            servers=servers.embedded,
            blocker=blocker or _Open(),
        )
        own = (
            invariants_in((invariants or Path(__file__).with_name("lab.sql")).read_text())
            if is_lab or invariants
            else []
        )
        here = Lab(stack, own=own, is_lab=is_lab, crew=crew, receiver=receiver)
        try:
            migrate(stack.env)
            here.prepare()
            here.start()
            yield here
        finally:
            stack.stop()


class _Open:
    """Outside pytest nothing keeps the database shut."""

    def unblock(self) -> Any:
        return nullcontext()


def thaw(pid: int, *, group: bool) -> None:
    """Let a frozen process go on; of a worker the child first, which its parent would end as soon as it wakes."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
        if group:
            time.sleep(0.7)
            os.killpg(os.getpgid(pid), signal.SIGCONT)


def demand_that_others_go_on(lab: Lab, senders: Senders) -> None:
    """While a worker stands still it must keep nothing from the others: all its work is done before it wakes."""
    lab.wait_until(lambda: senders.is_done() and lab.left() == 0, lab.lease.total_seconds() + 20)
    for finding in lab.verify(senders.since).violated:
        senders.failures.append(f"beside a frozen worker: {finding.name}: {finding.violations[:3]}")


def skewed_clock(folder: Path, seconds: int) -> dict[str, str]:
    """The environment of a process whose wall clock is wrong; empty where there is no C compiler."""
    if not can_move_clocks():
        return {}
    clock = MovedClock(folder)
    clock.move(timedelta(seconds=seconds))
    return clock.env


def servers_of(lab: Lab) -> tuple[embedded.Postgres, embedded.Valkey]:
    servers = lab.stack.servers
    assert servers.postgres and servers.valkey
    return servers.postgres, servers.valkey


def pause(random: Random, least: float, most: float) -> None:
    time.sleep(random.uniform(least, most))
