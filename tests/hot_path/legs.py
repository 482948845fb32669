"""The legs of a wake, each executed once on a real database."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any
from unittest.mock import patch

from django.db import connection
from django.db.models.functions import Now

from agents import AgentRun
from agents.exceptions import Permanent
from agents.prompt_agents import catalog
from runs import outbox, tasks, waits
from runs.actions.cancel import cancel
from runs.chores import timers
from runs.claim import Claim, claim_along, claim_next
from runs.executor import execute
from runs.models import OutboxMessage, Run
from runs.processes.rescue import lost
from runs.queues.stayers import UNLOCK, Stayers
from runs.worker import parent, stay
from tests.hot_path.recorder import Recorder, recording
from tests.support.durable import Lab
from tests.support.hooks import make_source, signed_headers
from tests.support.triggers import make_event, make_trigger
from triggers.accept import Incoming, accept, builtin_source
from triggers.dispatch.batch import dispatch, dispatch_items
from triggers.dispatch.looks import look
from triggers.dispatch.rules import Rules
from triggers.dispatch.shard import Request, dispatch_part, dump
from triggers.emit import emit
from triggers.matching.match import match_items
from triggers.matching.pending import read_items
from triggers.models import Event
from triggers.sources import backlog
from triggers.sources.http.headers import Headers
from triggers.sources.webhooks.door import Arrival, take

Leg = Callable[[Lab], Recorder]
REPORTED = {"reports": [{"on": "end", "notify": True, "event": True}]}


def incoming(number: int) -> Incoming:
    return Incoming(
        source_id=builtin_source("manual"), ce_source="/hot", ce_id=str(number), type="order.paid", data={"id": number}
    )


def an_event_is_accepted(lab: Lab) -> Recorder:
    event = incoming(1)
    with recording() as recorder:
        accept([event])
    return recorder


def a_project_emits_an_event(lab: Lab) -> Recorder:
    """Not the first one of its process, which looks for the schema."""
    emit("order.paid", {"id": 1})
    with recording() as recorder:
        emit("order.paid", {"id": 2})
    return recorder


def a_delivery_passes_the_door(lab: Lab) -> Recorder:
    """The second one of its source, which the process knows by then; this process has looked at the backlog."""
    make_source()
    deliver("1")
    looked = replace(backlog._backlog, looked_at=inf)
    with patch.object(backlog, "_backlog", looked), recording() as recorder:
        deliver("2")
    assert Event.objects.count() == 2
    return recorder


def deliver(id_: str) -> None:
    body = b'{"id": 1}'
    headers = Headers(signed_headers(body, id_=id_))
    take("shop", Arrival(method="POST", url="", headers=headers, body=body, client="127.0.0.1"))


def an_event_becomes_a_run(lab: Lab) -> Recorder:
    make_trigger(types=["order.paid"])
    return dispatched(Rules())


def an_event_becomes_a_run_of_a_key(lab: Lab) -> Recorder:
    make_trigger(types=["order.paid"], key="string(event.data.id)", overlap="queue")
    return dispatched(Rules())


def three_events_become_runs(lab: Lab) -> Recorder:
    make_trigger(types=["order.paid"])
    return dispatched(Rules(), count=3)


def a_shard_dispatches_three_events(lab: Lab) -> Recorder:
    make_trigger(types=["order.paid"])
    accept([incoming(number) for number in range(1, 4)])
    rules = Rules()
    part = dump(match_items(read_items(3), rules.current()))
    assert rules.version
    with recording() as recorder:
        assert dispatch_part(Request(3, rules.version[0][:2], part), rules, 0).dispatched == 3
    return recorder


def dispatched(rules: Rules, count: int = 1) -> Recorder:
    accept([incoming(number) for number in range(1, count + 1)])
    rules.current()
    with recording() as recorder:
        assert dispatch(rules).dispatched == count
    assert Run.objects.count() == count
    return recorder


def ready(lab: Lab, body: Callable[[AgentRun], Any], *, durable: bool = False, **fields: Any) -> None:
    lab.declare(body, "greeter", durable=durable)
    make_trigger(**fields)
    make_event()
    assert dispatch(Rules()).dispatched


def a_run_is_claimed(lab: Lab) -> Recorder:
    ready(lab, lambda run: None)
    with recording() as recorder:
        assert claim_next(lab.worker.id, "default", lab.versions)
    return recorder


def a_run_succeeds_and_the_next_is_claimed_along(lab: Lab) -> Recorder:
    ready(lab, lambda run: run.emit("order.shipped", {"id": 1}))
    make_event()
    dispatch(Rules())
    claim = claim_next(lab.worker.id, "default", lab.versions)
    assert claim
    with recording() as recorder:
        assert execute(claim, lambda: claim_along(lab.worker.id, "default", lab.versions))
    return recorder


def a_ring_executes_the_only_run(lab: Lab) -> Recorder:
    ready(lab, lambda run: None)
    return rung(lab)


def a_ring_finds_nothing(lab: Lab) -> Recorder:
    return rung(lab)


def rung(lab: Lab) -> Recorder:
    catalog.refresh(at_once=True)  # a process looks once a second
    with recording() as recorder, patch.object(parent, "WORKER_ID", lab.worker.id):
        tasks.doorbell("default")
    return recorder


def an_event_wakes_a_child_that_stays(lab: Lab) -> Recorder:
    """Instead of a ring. No other session holds the lock here, so none is woken; the statements are the same."""
    make_trigger(types=["order.paid"])
    rules = Rules()
    accept([incoming(1)])
    rules.current()
    items = read_items(1)
    with recording() as recorder:
        assert dispatch_items(items, rules, stayers=Stayers()).dispatched
    return recorder


def a_child_that_stays_executes_the_only_run(lab: Lab) -> Recorder:
    """From the NOTIFY to the next wait."""
    ready(lab, lambda run: None)
    catalog.refresh(at_once=True)
    assert stay._begins("default")
    with patch.object(parent, "WORKER_ID", lab.worker.id), patch.object(stay, "_is_woken", lambda: True):
        with recording() as recorder:
            claim = stay._next_run(lab.worker.id, "default", lab.versions)
            assert isinstance(claim, Claim)
            tasks.execute_until_none_is_left(claim, "default", lab.versions)
            assert stay._begins("default")
    stay._end("default", UNLOCK)
    assert Run.objects.get().status == "succeeded"
    return recorder


def a_run_of_a_key_succeeds(lab: Lab) -> Recorder:
    ready(lab, lambda run: None, key="'one'", overlap="queue")
    return executed(lab)


def a_run_is_tried_again(lab: Lab) -> Recorder:
    def fails(run: AgentRun) -> None:
        raise ValueError("no")

    ready(lab, fails)
    return executed(lab)


def a_run_fails(lab: Lab) -> Recorder:
    def fails(run: AgentRun) -> None:
        raise Permanent("no")

    ready(lab, fails)
    return executed(lab)


def a_run_that_logs_succeeds(lab: Lab) -> Recorder:
    ready(lab, lambda run: run.log.info("picked", sku="bad-1"), key="'one'", overlap="queue")
    return executed(lab)


def a_run_that_logs_fails(lab: Lab) -> Recorder:
    def fails(run: AgentRun) -> None:
        run.log.info("picking", sku="bad-1")
        raise Permanent("no")

    ready(lab, fails)
    return executed(lab)


def a_run_with_a_report_succeeds(lab: Lab) -> Recorder:
    ready(lab, lambda run: None, key="'one'", overlap="queue", policy=REPORTED)
    return executed(lab)


def an_end_is_reported(lab: Lab) -> Recorder:
    a_run_with_a_report_succeeds(lab)
    OutboxMessage.objects.update(available_at=Now())
    builtin_source("run")
    with recording() as recorder:
        assert outbox.deliver_inside(100, ["run.report"])
    return recorder


def a_durable_run_makes_a_step_and_waits(lab: Lab) -> Recorder:
    def body(run: AgentRun) -> None:
        run.step("one", int, effect="at_most_once")
        run.sleep("1d")

    ready(lab, body, durable=True)
    return executed(lab)


def a_run_sleeps_for_a_moment_and_succeeds(lab: Lab) -> Recorder:
    ready(lab, lambda run: run.sleep(0.001), durable=True)
    return executed(lab)


def a_run_waits_for_its_third_event(lab: Lab) -> Recorder:
    def body(run: AgentRun) -> None:
        for _ in range(3):
            run.wait_for_event("order.paid", timeout="1h")

    ready(lab, body, durable=True)
    for number in range(2):
        executed(lab)
        accept([incoming(number)])
        assert dispatch(Rules()).dispatched
    return executed(lab)


def executed(lab: Lab) -> Recorder:
    claim = claim_next(lab.worker.id, "default", lab.versions)
    assert claim
    with recording() as recorder:
        execute(claim)
    return recorder


def a_wait_ends_by_time(lab: Lab) -> Recorder:
    ready(lab, lambda run: run.sleep("1h"), durable=True)
    executed(lab)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_wait SET created_at = created_at - interval '2 h', due_at = due_at - interval '2 h'"
        )
    with recording() as recorder:
        assert waits.end_due(100).runs == 1
    return recorder


def a_wait_ends_by_an_event(lab: Lab) -> Recorder:
    ready(lab, lambda run: run.wait_for_event("order.paid", timeout="1h"), durable=True)
    executed(lab)
    rules = Rules()
    accept([incoming(1)])
    rules.current()
    with recording() as recorder:
        assert dispatch(rules).dispatched == 1
    assert Run.objects.get().status == "queued"
    return recorder


def a_backoff_ends(lab: Lab) -> Recorder:
    a_run_is_tried_again(lab)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET due_at = clock_timestamp()")
    with recording() as recorder:
        assert timers.wake_due(100) == 1
    return recorder


def a_lost_run_is_handed_on(lab: Lab) -> Recorder:
    a_run_is_claimed(lab)
    run = Run.objects.get()
    with connection.cursor() as cursor:
        cursor.execute("RESET application_name")  # a rescuer ends the session of the claim
    with recording() as recorder:
        assert lost(run, "its worker was lost")
    return recorder


def a_queued_run_is_cancelled(lab: Lab) -> Recorder:
    ready(lab, lambda run: None)
    run = Run.objects.get()
    with recording() as recorder:
        cancel(run.id, by="test")
    return recorder


def an_emitted_event_is_recorded(lab: Lab) -> Recorder:
    ready(lab, lambda run: run.emit("order.shipped", {"id": 1}))
    executed(lab)
    builtin_source("run")  # a process asks for it once
    OutboxMessage.objects.update(available_at=Now())  # some may wait for the end of their half second
    with recording() as recorder:
        assert outbox.deliver_inside(100)
    return recorder


def the_dispatcher_looks_for_work(lab: Lab) -> Recorder:
    with recording() as recorder:
        look(asks_for_events=True)
    return recorder


LEGS: dict[str, Leg] = {
    leg.__name__: leg
    for leg in (
        an_event_is_accepted,
        a_project_emits_an_event,
        a_delivery_passes_the_door,
        an_event_becomes_a_run,
        an_event_becomes_a_run_of_a_key,
        three_events_become_runs,
        a_shard_dispatches_three_events,
        a_run_is_claimed,
        a_run_succeeds_and_the_next_is_claimed_along,
        a_ring_executes_the_only_run,
        a_ring_finds_nothing,
        an_event_wakes_a_child_that_stays,
        a_child_that_stays_executes_the_only_run,
        a_run_of_a_key_succeeds,
        a_run_is_tried_again,
        a_run_fails,
        a_durable_run_makes_a_step_and_waits,
        a_run_sleeps_for_a_moment_and_succeeds,
        a_run_waits_for_its_third_event,
        a_wait_ends_by_time,
        a_wait_ends_by_an_event,
        a_backoff_ends,
        a_lost_run_is_handed_on,
        a_queued_run_is_cancelled,
        an_emitted_event_is_recorded,
        a_run_that_logs_succeeds,
        a_run_that_logs_fails,
        a_run_with_a_report_succeeds,
        an_end_is_reported,
        the_dispatcher_looks_for_work,
    )
}
