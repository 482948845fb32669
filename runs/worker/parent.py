"""The parent of a Celery worker's children: it renews the lease, watches the children, stops overdue and cancelled runs, and releases
everything in order at a shutdown.

It rests while no child runs anything: it renews rarely, for longer. The first doorbell ends that, before a child can claim a run or
at the same moment.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import structlog
from celery import bootsteps
from celery.signals import task_received, worker_shutdown, worker_shutting_down
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DjangoDatabaseError
from django.db import connection

from agents import Agent, registry
from agents.prompt_agents import catalog
from runs.db.errors import is_gone
from runs.db.listen import listen, notified, set_timeouts, working_session
from runs.db.poll import readable
from runs.db.ready_runs import IS_STOPPED
from runs.db.schema_check import wait_for_migrations
from runs.db.sql import execute
from runs.failpoints import failpoint
from runs.incidents.mutes import end_mutes
from runs.models import UNPARSED, Attempt, Run, Worker
from runs.processes import lease, timeline
from runs.processes.lease import Running
from runs.processes.pulse import Pulse
from runs.processes.rescue import lost, terminate_session
from runs.queues.doorbell import DOORBELL, QUEUE_PREFIX
from runs.states import RunStatus
from runs.transitions.leave import take_away
from runs.transitions.outcome import Outcome, released, ticket_of
from runs.worker import board, child  # noqa: F401  (child: its receivers prepare each child)
from runs.worker.rest import Rest

log = structlog.get_logger(__name__)

KILL_WAIT = 2.0  # seconds to wait for the end of a SIGKILLed child
EARLIER_DEFAULT = "celery"
MUTES_WAIT = timedelta(milliseconds=100)  # for the lock of incidents, between two renewals of the lease
PAUSE = 1.0  # seconds between two looks while they fail
JUDGE_AFTER = 5.0  # seconds after the database is back in which a child may record the outcome of an overdue run
# This incarnation. Children inherit it by fork; a new parent process is a new incarnation, also one that was itself forked with
# this module loaded: see `Parent`.
WORKER_ID = uuid4()

# A fence raises the epoch, so that the owner can commit nothing more; no row: the run has changed meanwhile.
FENCE_OVERDUE = """
UPDATE runs_run SET epoch = epoch + 1
WHERE id = %s::uuid AND epoch = %s::int AND claim IS NOT DISTINCT FROM %s::uuid AND status = 'running' AND deadline_at < clock_timestamp()
"""
FENCE_STOPPED = """
UPDATE runs_run SET epoch = epoch + 1
WHERE id = %s::uuid AND epoch = %s::int AND claim IS NOT DISTINCT FROM %s::uuid AND status = 'running' AND {is_stopped}
""".replace("{is_stopped}", IS_STOPPED.format(agent="runs_run.agent"))
FENCE_CANCELLED = """
UPDATE runs_run SET epoch = epoch + 1
WHERE id = %s::uuid AND epoch = %s::int AND claim IS NOT DISTINCT FROM %s::uuid AND status = 'running' AND cancel_requested_at IS NOT NULL
"""


MISSED_DEADLINE = Outcome(
    status=RunStatus.FAILED,
    attempt=Attempt.Outcome.DEADLINE,
    reason="deadline",
    error="DeadlineExceeded: it did not stop at its timeout, so its process was killed",
)
CANCELLED = Outcome(
    status=RunStatus.CANCELLED, attempt=Attempt.Outcome.CANCELLED, reason="cancelled", error="cancelled while running"
)
STOPPED = Outcome(
    status=RunStatus.QUEUED,
    attempt=Attempt.Outcome.RELEASED,
    reason="stopped: an operator has stopped its agent; it goes on when the agent is started",
    give_back=True,
)


class Parent(bootsteps.StartStopStep):
    """Celery bootstep: begins the incarnation after the pool has started, before the consumer takes its first doorbell."""

    requires = ("celery.worker.components:Pool",)
    watch: "Watch | None" = None

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        global WORKER_ID
        WORKER_ID = uuid4()
        # With autoscale Celery adds and removes children as it sees fit: none of them is known to be free.
        board.begin(0 if worker.autoscale else worker.concurrency)
        super().__init__(worker, **kwargs)
        if "prefork" not in worker.pool_cls.__module__:
            raise ImproperlyConfigured(
                f"Wakeful's workers need Celery's prefork pool, not {worker.pool_cls.__module__}: "
                "a run is stopped by ending its process. Start the worker without -P."
            )

    def start(self, worker: Any) -> None:
        serve_default_queue(worker.app)
        queues = [
            name.removeprefix(QUEUE_PREFIX)
            for name in worker.app.amqp.queues.consume_from
            if name.startswith(QUEUE_PREFIX)
        ]
        pulse = lease.pulse_of(Worker.Kind.WORKER)
        wait_for_migrations(meanwhile=pulse.beat)
        catalog.refresh(at_once=True)
        agents = registry.all_agents()
        timeline.notice_failover()  # before this incarnation, which belongs to the new timeline
        lease.open_row(
            Worker.Kind.WORKER,
            id=WORKER_ID,
            concurrency=worker.concurrency,
            queues=queues,
            **names_of(agents),
        )
        has_ended = end_mutes(lease.wakeful_version()) is not None
        connection.close()
        Parent.watch = Watch(worker, agents, pulse)
        Parent.watch.leaves_mutes = not has_ended
        Parent.watch.start()

    def close(self, worker: Any) -> None:
        """Any shutdown begins, also one without a signal. The pool waits for its children next."""
        board.board.stop()


@task_received.connect
def hear_doorbell(request: Any = None, **kwargs: Any) -> None:
    """A doorbell, before a child gets it."""
    if Parent.watch is not None and request is not None and request.name == DOORBELL:
        Parent.watch.wake()


@worker_shutting_down.connect
def begin_draining(**kwargs: Any) -> None:
    if Parent.watch is not None:
        Parent.watch.drain()


@worker_shutdown.connect
def end_incarnation(**kwargs: Any) -> None:
    if Parent.watch is not None:
        Parent.watch.finish()


class Watch(threading.Thread):
    """Blocks until a child dies, the lease must be renewed, prompt agents were edited, or a shutdown begins."""

    def __init__(self, worker: Any, agents: Sequence[Agent] = (), pulse: Pulse | None = None) -> None:
        super().__init__(name="wakeful-parent", daemon=True)
        self.worker = worker
        self.pulse = pulse or lease.pulse_of(Worker.Kind.WORKER)
        self.known = names_of(agents)  # the agents that this worker's row names
        self.children: dict[int, int] = {}  # pid → a descriptor that becomes readable when the child dies
        self.prompt_agents = ""
        self.renew_at = 0.0
        self.rest = Rest()
        self.kill_at: float | None = None
        self.judge_at = 0.0  # the earliest deadline: no run is overdue before it
        self.clock = lease.Clock()
        self.draining = False
        self.leaves_mutes = False  # the lock of incidents was held
        self.stopped = threading.Event()
        self.wake_reader, self.wake_writer = os.pipe()

    def drain(self) -> None:
        """Called from a signal handler: only note the time, and wake the thread."""
        board.board.stop()
        if self.kill_at is None:
            self.kill_at = time.monotonic() + settings.WAKEFUL_SHUTDOWN_GRACE.total_seconds()
        os.write(self.wake_writer, b".")

    def wake(self) -> None:
        """Called from the consumer's thread: a child may run something now."""
        self.rest.put_off()
        if self.rest.is_taken:
            os.write(self.wake_writer, b".")

    def finish(self) -> None:
        """Call after the end of the pool: end the incarnation."""
        self.stopped.set()
        os.write(self.wake_writer, b".")
        self.join(timeout=5)

    def run(self) -> None:
        while not self.stopped.is_set():
            self.pulse.beat()
            try:
                self.look()
            except Exception as error:
                # Without a database no other process can take a run either, and children cannot commit. After any other
                # error go on as well: without this thread the worker would live on and claim nothing.
                log.exception("worker.database_gone" if is_gone(error) else "worker.watch_failed")
                connection.close()
                self.judge_at = time.monotonic() + PAUSE + JUDGE_AFTER
                if self.kill_at is not None and time.monotonic() >= self.kill_at:
                    self.stop_now()
                self.stopped.wait(PAUSE)
                self.renew_at = 0.0
        with contextlib.suppress(DjangoDatabaseError):
            lease.close_row(WORKER_ID, "stopped")
        connection.close()

    def look(self) -> None:
        if connection.connection is None:
            set_timeouts()  # waiting for a lock on a run must not cost this worker its lease
            listen(catalog.CHANNEL)
            timeline.notice_failover()
        self.track_children()
        for pid in self.wait():
            self.bury(pid)
        if self.kill_at is not None and not self.draining:
            lease.drain(WORKER_ID)
            self.draining = True
        if time.monotonic() >= self.renew_at:
            self.renew()
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self.stop_now()

    def wait(self) -> list[int]:
        """Sleep until there is work; return the pids of children that died meanwhile."""
        until = min(self.renew_at, self.kill_at or self.renew_at)
        if notified():
            self.renew_at = until = 0.0
        descriptors = [self.wake_reader, *self.children.values(), *working_session()]
        ready = readable(descriptors, max(0.0, until - time.monotonic()))
        if self.wake_reader in ready:
            os.read(self.wake_reader, 1024)
        if notified() or self.rest.is_over:
            self.renew_at = 0.0
        return [pid for pid, sentinel in self.children.items() if sentinel in ready]

    def track_children(self) -> None:
        pool = self.worker.pool._pool
        for process in list(pool._pool) if pool else []:
            if process.pid not in self.children:
                # The pool is reaping or starting the child at this moment.
                with contextlib.suppress(OSError, AttributeError, ValueError):
                    self.children[process.pid] = os.dup(process.sentinel)

    def bury(self, pid: int, *, is_released: bool = False) -> None:
        """A child is dead: its run is lost, or released if this parent killed the child for another reason."""
        os.close(self.children.pop(pid))
        for run in Run.objects.running().filter(worker_id=WORKER_ID, pid=pid).defer(*UNPARSED):
            if is_released:
                self.release(run)
            else:
                lost(run, f"its process {pid} died")

    def renew(self) -> None:
        failpoint("before_renew")
        if self.kill_at is not None or board.board.has_one_that_stays:
            self.rest.put_off()
        renewed = lease.renew(WORKER_ID, self.clock, owns=not self.rest.begin_or_end())
        if renewed is None:
            self.begin_again()
            return
        if renewed.running:
            self.rest.put_off()
        self.rest.is_allowed = renewed.may_rest
        self.renew_at = time.monotonic() + self.rest.every.total_seconds()
        self.track_children()  # a child that started while this thread slept may have claimed one of them
        for run in renewed.running:
            try:
                self.judge(run)
            except Exception as error:
                if is_gone(error):
                    raise
                # The database refuses what is written of this run: it must not keep the others from their end.
                log.exception("worker.run_refused", run=str(run.ticket.run_id))
        if renewed.prompt_agents != self.prompt_agents:
            self.learn()
            self.prompt_agents = renewed.prompt_agents
        if self.leaves_mutes:
            self.leaves_mutes = end_mutes(lease.wakeful_version(), wait=MUTES_WAIT) is None

    def judge(self, run: Running) -> None:
        if run.pid not in self.children:
            self.take_orphan(run)
        elif run.overdue and time.monotonic() >= self.judge_at:
            self.stop_run(run, FENCE_OVERDUE, MISSED_DEADLINE)
        elif run.cancelled:
            self.stop_run(run, FENCE_CANCELLED, CANCELLED)
        elif run.stopped:
            self.stop_run(run, FENCE_STOPPED, STOPPED)

    def learn(self) -> None:
        """Say in this worker's row which prompt agents there are now. Its children look themselves."""
        catalog.refresh(at_once=True)
        known = names_of(registry.all_agents())
        if known != self.known:
            lease.know_agents(WORKER_ID, **known)
            self.known = known

    def take_orphan(self, running: Running) -> None:
        """Hand on the run of a child that started and died between two looks."""
        for run in (
            Run.objects.running()
            .filter(pk=running.ticket.run_id, epoch=running.ticket.epoch, claim=running.ticket.claim)
            .defer(*UNPARSED)
        ):
            lost(run, f"its process {running.pid} died")

    def stop_run(self, running: Running, fence: str, outcome: Outcome) -> None:
        """Fence the run first, so that it cannot finish meanwhile; then kill its child; then record the outcome."""
        ticket = running.ticket
        if not execute(fence, [ticket.run_id, ticket.epoch, ticket.claim]):
            return
        failpoint("after_fence")
        self.kill(running.pid)
        terminate_session(ticket.run_id, ticket.epoch)
        failpoint("after_stop")
        fenced = replace(ticket, epoch=ticket.epoch + 1)
        take_away(fenced, outcome, expected=RunStatus.RUNNING, claim_epoch=ticket.epoch)
        log.warning("run.stopped", run=str(ticket.run_id), epoch=ticket.epoch, reason=outcome.reason)
        self.bury(running.pid, is_released=True)

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        readable([self.children[pid]], KILL_WAIT)

    def release(self, run: Run) -> None:
        terminate_session(run.id, run.epoch)
        take_away(ticket_of(run), released("its worker stopped"), expected=RunStatus.RUNNING)
        log.info("run.released", run=str(run.id), epoch=run.epoch)

    def stop_now(self) -> None:
        """The grace is over: kill the children, release what they ran, and leave."""
        self.track_children()
        for pid in list(self.children):
            self.kill(pid)
        with contextlib.suppress(DjangoDatabaseError):  # without a database, the rescue releases them
            for pid in list(self.children):
                self.bury(pid, is_released=True)
            lease.close_row(WORKER_ID, "stopped")
        leave_process(lambda: os._exit(0))

    def begin_again(self) -> None:
        """Start a new incarnation: this one was closed and its runs were handed on."""
        log.warning("worker.lease_lost", worker=str(WORKER_ID))
        for pid in list(self.children):
            self.kill(pid)
            with contextlib.suppress(ChildProcessError):  # the pool has reaped it
                os.waitpid(pid, os.WNOHANG)
        leave_process(lambda: os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]]))  # noqa: S606 (its own command line)


def serve_default_queue(app: Any) -> None:
    """A unit that was written when the queue of ordinary tasks had Celery's own name lists that one: `-Q celery,runs.slow`."""
    queues, name = app.amqp.queues, app.conf.task_default_queue
    if EARLIER_DEFAULT in queues.consume_from and name not in queues.consume_from:
        log.warning("worker.serves_also", queue=name, because=f"-Q names {EARLIER_DEFAULT}, its name until 0.1")
        queues.select_add(queues[name])


def names_of(agents: Sequence[Agent]) -> dict[str, list[str]]:
    """The agents' names as a worker's row stores them."""
    return {
        "agents": [agent.name for agent in agents],
        "durable_agents": [agent.name for agent in agents if agent.durable],
    }


def leave_process(leave: Any) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    leave()
