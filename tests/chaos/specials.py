"""Troubles that belong to no point: each takes a lab in the midst of its load, and returns whether it came about."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any

import psycopg

from tests.chaos.lab import Lab, demand_that_others_go_on, servers_of, skewed_clock
from tests.chaos.load import Delivery, Senders
from tests.chaos.needs import ask, busy

HELD = 3.5  # seconds: longer than anybody's lock_timeout
LOST_FOR = 4.0  # seconds: the safety look of a dispatcher that rests


@contextmanager
def neighbour(lab: Lab) -> Iterator[psycopg.Connection[Any]]:
    """A foreign session in the same database, idle in its transaction until the end."""
    with psycopg.connect(lab.stack.database_url) as connection:
        yield connection
        connection.rollback()


def a_neighbour_holds_runs(lab: Lab, senders: Senders, random: Random) -> bool:
    lab.wait_until(lambda: lab.stack.query("SELECT 1 FROM runs_run WHERE status = 'running'"), 10)
    with neighbour(lab) as session:
        rows = session.execute(
            "SELECT id FROM runs_run WHERE status IN ('queued', 'running') ORDER BY random() LIMIT 10 FOR UPDATE SKIP LOCKED"
        ).fetchall()
        lab.wait_until(lambda: None, HELD)
    return bool(rows)


def a_neighbour_holds_keys(lab: Lab, senders: Senders, random: Random) -> bool:
    query = (
        "SELECT DISTINCT key FROM runs_run WHERE key IS NOT NULL AND created_at > clock_timestamp() - interval '5 s'"
    )
    keys = lab.wait_until(lambda: lab.stack.query(query), 10) or []
    with neighbour(lab) as session:
        for row in keys:
            session.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s::text, 0))", [row["key"]])
        lab.wait_until(lambda: None, HELD)
    return bool(keys)


def a_neighbour_holds_the_agents_rows(lab: Lab, senders: Senders, random: Random) -> bool:
    with neighbour(lab) as session:
        table = "lab_shared" if lab.is_lab else "triggers_trigger"
        session.execute(f"LOCK TABLE {table} IN SHARE ROW EXCLUSIVE MODE")
        session.execute("SELECT 1 FROM triggers_trigger FOR UPDATE")
        lab.wait_until(lambda: None, HELD)
    return True


def a_worker_an_hour_ahead(lab: Lab, senders: Senders, random: Random) -> bool:
    return _with_clock_off(lab, senders, 3600)


def a_worker_an_hour_behind(lab: Lab, senders: Senders, random: Random) -> bool:
    return _with_clock_off(lab, senders, -3600)


def _with_clock_off(lab: Lab, senders: Senders, seconds: int) -> bool:
    env = skewed_clock(lab.stack.folder, seconds)
    if not env:
        return False
    workers = lab.of("worker")
    odd = lab.begin("worker", env)
    odd.wait_ready(60)
    # The others are frozen, so that it must do the work; when they come back, it dies with what it has.
    for worker in workers:
        worker.freeze()
    senders.send(_again(senders))
    lab.wait_until(lambda: None, lab.lease.total_seconds() + 2)
    for worker in workers:
        worker.thaw()
    claimed = "SELECT 1 FROM runs_attempt JOIN runs_worker worker ON worker.id = worker_id WHERE worker.pid = %s"
    worked = bool(lab.stack.query(claimed, odd.pid))
    lab.dismiss([odd])
    return worked


def postgres_killed_twice(lab: Lab, senders: Senders, random: Random) -> bool:
    """The second time while everybody is still picking up what the first has left."""
    postgres, _ = servers_of(lab)
    lab.wait_until(lambda: None, random.uniform(0.3, 1.5))
    postgres.kill()
    postgres.start()
    lab.wait_until(lambda: None, random.uniform(0.5, 2.5))
    postgres.kill()
    time.sleep(random.uniform(0, 1))
    postgres.start()
    return True


def a_frozen_worker_thaws_after_its_successor(lab: Lab, senders: Senders, random: Random) -> bool:
    run = busy(lab, senders, seconds=1.0)
    worker = lab.who_runs(run)
    if worker is None:
        return False
    worker.freeze()
    again = "SELECT 1 FROM runs_run WHERE id = %s AND (epoch > %s OR status = 'succeeded')"
    handed_on = lab.wait_until(lambda: lab.stack.query(again, run["id"], run["epoch"]), 20)
    demand_that_others_go_on(lab, senders)
    # Its children wake before it does, and go on where they stood.
    for child in worker.children():
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGCONT)
    time.sleep(0.7)
    worker.thaw()
    return bool(handed_on)


def everything_frozen(lab: Lab, senders: Senders, random: Random) -> bool:
    """As when a virtual machine is paused."""
    lab.wait_until(lambda: None, random.uniform(0.3, 1.0))
    for process in lab.stack.processes:
        process.freeze()
    time.sleep(lab.lease.total_seconds() + 2)
    for process in lab.stack.processes:
        process.thaw()
    return True


def everything_killed(lab: Lab, senders: Senders, random: Random) -> bool:
    lab.wait_until(lambda: None, random.uniform(0.3, 1.0))
    for process in lab.stack.processes:
        process.kill()
    return True


def crowds_of_dispatchers_and_beats(lab: Lab, senders: Senders, random: Random) -> bool:
    more = [lab.begin(kind) for kind in ("dispatcher", "dispatcher", "beat", "beat")]
    for process in more:
        process.wait_ready(60)
    senders.send(_again(senders))
    lab.wait_until(lambda: None, 2)
    lab.dismiss(more)
    return True


def _again(senders: Senders) -> list[Delivery]:
    data = {"number": 0, "seconds": 0.1}
    return [
        Delivery(id=f"{senders.seed}-again-{number}", type="lab.plain", data=data, door="api") for number in range(20)
    ]


def children_killed_again_and_again(lab: Lab, senders: Senders, random: Random) -> bool:
    killed = 0
    for _ in range(4):
        found = lab.wait_until(lambda: lab.stack.query("SELECT pid FROM runs_run WHERE status = 'running'"), 5) or []
        for row in found[:1]:
            with suppress(ProcessLookupError):
                os.kill(row["pid"], signal.SIGKILL)
                killed += 1
        lab.wait_until(lambda: None, random.uniform(0.1, 0.6))
    return killed > 0


def every_session_cut(lab: Lab, senders: Senders, random: Random) -> bool:
    cut = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    """
    for _ in range(3):
        lab.wait_until(lambda: None, random.uniform(0.2, 0.9))
        lab.stack.query(cut)
    return True


def redis_gone_and_forgetful(lab: Lab, senders: Senders, random: Random) -> bool:
    """Away for ten seconds, and it comes back empty."""
    _, valkey = servers_of(lab)
    lab.wait_until(lambda: None, random.uniform(0, 0.5))
    valkey.kill()
    lab.wait_until(lambda: None, 10)
    valkey.start()
    valkey.flush()
    return True


def redis_hangs(lab: Lab, senders: Senders, random: Random) -> bool:
    """It accepts and does not answer: what is accepted meanwhile is dispatched meanwhile, and only rings wait."""
    _, valkey = servers_of(lab)
    if valkey.process is None:
        return False
    before = "SELECT count(*) AS n FROM triggers_event WHERE dispatched_at IS NOT NULL"
    waits = (
        "SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL AND received_at < clock_timestamp() - interval '7 s'"
    )
    [dispatched] = lab.stack.query(before)
    valkey.process.send_signal(signal.SIGSTOP)
    try:
        until = time.monotonic() + 14
        while time.monotonic() < until:
            lab.emit(senders, "lab.plain", number=0, seconds=0)
            lab.wait_until(lambda: None, 0.5)
            if lab.stack.query(waits):
                senders.failures.append("while the broker hangs: dispatch goes on")
                break
        return bool(lab.stack.query(before)[0]["n"] > dispatched["n"])
    finally:
        valkey.process.send_signal(signal.SIGCONT)


REFUSE = """
CREATE OR REPLACE FUNCTION refuse_runs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE insufficient_privilege USING MESSAGE = 'permission denied for table runs_run'; END $$;
CREATE TRIGGER refuse_runs BEFORE INSERT ON runs_run FOR EACH ROW WHEN (NEW.parent_id IS NULL) EXECUTE FUNCTION refuse_runs()
"""


def the_database_refuses_runs(lab: Lab, senders: Senders, random: Random) -> bool:
    """As when a deploy forgets a grant: each event that starts a run fails alone, and none is given up for it."""
    given_up = "SELECT count(*)::int AS n FROM triggers_decision WHERE outcome = 'error'"
    refused = "SELECT 1 FROM runs_alarm WHERE name = 'dispatch-refused' AND ended_at IS NULL"
    [before] = lab.stack.query(given_up)
    lab.stack.query(REFUSE)
    try:
        for number in range(20):
            event = lab.emit(senders, "lab.plain", number=number, seconds=0)
            lab.wait_until(lambda: None, 0.3)
        if not lab.wait_until(lambda: lab.stack.query(refused), 20):
            senders.failures.append("while the database refuses runs: there is an alarm")
        made = lab.stack.query("SELECT 1 FROM runs_run WHERE %s::uuid = ANY (event_ids)", event)
    finally:
        lab.stack.query("DROP TRIGGER refuse_runs ON runs_run")
    if lab.stack.query(given_up) != [before]:
        senders.failures.append("while the database refuses runs: no event is given up")
    return not made


QUIET = """
SELECT NOT EXISTS (SELECT FROM triggers_event WHERE dispatched_at IS NULL OR received_at > clock_timestamp() - interval '3 s')
  AND NOT EXISTS (SELECT FROM runs_run WHERE status IN ('queued', 'running')) AND NOT EXISTS (SELECT FROM runs_outboxmessage) AS is_quiet
"""


def a_notify_is_lost(lab: Lab, senders: Senders, random: Random) -> bool:
    """The writer of an event ends between its commit and its NOTIFY, while nothing else wakes the dispatcher: its safety look finds the
    event."""
    is_quiet = lab.wait_until(lambda: senders.is_done() and lab.stack.query(QUIET)[0]["is_quiet"], 120)
    with lab.stack.orm():
        from runs.db import nudge
        from triggers.accept import Incoming, accept, builtin_source

        nudge._is_dispatcher = True  # which sends none
        try:
            made = Incoming(
                source_id=builtin_source("cli"),
                ce_source="chaos",
                ce_id=f"{senders.seed}-{time.time_ns()}",
                type="lab.plain",
                data={"number": 0, "seconds": 0},
            )
            [event] = accept([made])
        finally:
            nudge._is_dispatcher = False
    dispatched = "SELECT 1 FROM triggers_event WHERE id = %s AND dispatched_at IS NOT NULL"
    if not lab.wait_until(lambda: lab.stack.query(dispatched, event.event_id), 4 * LOST_FOR):
        senders.failures.append("where a NOTIFY is lost: the safety look finds its event")
    return bool(is_quiet)  # on a machine that is too busy, something else has woken the dispatcher


def everything_replaced_in_order(lab: Lab, senders: Senders, random: Random) -> bool:
    """A deploy: every process gets SIGTERM, all at once, and is started again when it has stopped."""
    lab.wait_until(lambda: None, random.uniform(0.3, 1.0))
    stoppers = [threading.Thread(target=process.stop) for process in lab.stack.processes]
    for thread in stoppers:
        thread.start()
    for thread in stoppers:
        thread.join()
    return True


def people_decide_at_once(lab: Lab, senders: Senders, random: Random) -> bool:
    """All of them what each run asks, each in another way."""
    event = lab.emit(senders, "lab.asking", number=50, expires=15)
    query = """
    SELECT approval.id FROM runs_approval approval JOIN runs_wait wait ON wait.id = wait_id JOIN runs_run run ON run.id = run_id
    WHERE %s::uuid = ANY (event_ids) AND decision = ''
    """
    found = lab.wait_until(lambda: lab.stack.query(query, event), 20) or []
    choices: list[dict[str, Any]] = [{"decision": "edit", "arguments": {"cents": cents}} for cents in range(4)]
    for approval in found:
        for choice in [*choices, {"decision": "approve"}]:
            ask(lab, senders, f"/api/v1/approvals/{approval['id']}/decide/", choice)
    return bool(found)
