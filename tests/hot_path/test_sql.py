"""The hot SQL as it is executed, leg by leg, in `sql/`: to read, to review in a diff, and to paste into psql.

A statement that changes on purpose: WRITE=1 pytest tests/hot_path/test_sql.py, and review the diff.
"""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from agents import AgentRun
from agents.exceptions import Permanent
from runs import outbox, waits
from runs.actions.cancel import cancel
from runs.chores import timers
from runs.claim import claim_along, claim_next
from runs.executor import execute
from runs.models import Run
from runs.processes.rescue import lost
from tests.hot_path.legs import Sent, psql, recording
from tests.support.durable import Lab
from tests.support.triggers import make_event, make_trigger
from triggers.accept import Incoming, accept, builtin_source
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules

pytestmark = pytest.mark.django_db(transaction=True)

FILES = Path(__file__).parent / "sql"
SET = re.compile(r"^\\set (\w+) '(.*)'$", re.MULTILINE)
VARIABLE = re.compile(r"(?<!:):(\w+)")
EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")
Leg = Callable[[Lab], Sequence[Sent]]


def incoming(number: int) -> Incoming:
    return Incoming(
        source_id=builtin_source("manual"), ce_source="/hot", ce_id=str(number), type="order.paid", data={"id": number}
    )


def an_event_is_accepted(lab: Lab) -> Sequence[Sent]:
    event = incoming(1)
    with recording() as recorder:
        accept([event])
    return recorder.sent


def an_event_becomes_a_run(lab: Lab) -> Sequence[Sent]:
    make_trigger(types=["order.paid"])
    return dispatched(Rules())


def an_event_becomes_a_run_of_a_key(lab: Lab) -> Sequence[Sent]:
    make_trigger(types=["order.paid"], key="string(event.data.id)", overlap="queue")
    return dispatched(Rules())


def dispatched(rules: Rules) -> Sequence[Sent]:
    accept([incoming(1)])
    rules.current()
    with recording() as recorder:
        assert dispatch(rules).dispatched == 1
    assert Run.objects.count() == 1
    return recorder.sent


def ready(lab: Lab, body: Callable[[AgentRun], Any], *, durable: bool = False, **fields: Any) -> None:
    lab.declare(body, "greeter", durable=durable)
    make_trigger(**fields)
    make_event()
    assert dispatch(Rules()).dispatched


def a_run_is_claimed(lab: Lab) -> Sequence[Sent]:
    ready(lab, lambda run: None)
    with recording() as recorder:
        assert claim_next(lab.worker.id, "default", lab.versions)
    return recorder.sent


def a_run_succeeds_and_the_next_is_claimed_along(lab: Lab) -> Sequence[Sent]:
    ready(lab, lambda run: run.emit("order.shipped", {"id": 1}))
    make_event()
    dispatch(Rules())
    claim = claim_next(lab.worker.id, "default", lab.versions)
    assert claim
    with recording() as recorder:
        assert execute(claim, lambda: claim_along(lab.worker.id, "default", lab.versions))
    return recorder.sent


def a_run_of_a_key_succeeds(lab: Lab) -> Sequence[Sent]:
    ready(lab, lambda run: None, key="'one'", overlap="queue")
    return executed(lab)


def a_run_is_tried_again(lab: Lab) -> Sequence[Sent]:
    def fails(run: AgentRun) -> None:
        raise ValueError("no")

    ready(lab, fails)
    return executed(lab)


def a_run_fails(lab: Lab) -> Sequence[Sent]:
    def fails(run: AgentRun) -> None:
        raise Permanent("no")

    ready(lab, fails)
    return executed(lab)


def a_durable_run_makes_a_step_and_waits(lab: Lab) -> Sequence[Sent]:
    def body(run: AgentRun) -> None:
        run.step("one", int, effect="at_most_once")
        run.sleep("1d")

    ready(lab, body, durable=True)
    return executed(lab)


def executed(lab: Lab) -> Sequence[Sent]:
    claim = claim_next(lab.worker.id, "default", lab.versions)
    assert claim
    with recording() as recorder:
        execute(claim)
    return recorder.sent


def a_wait_ends_by_time(lab: Lab) -> Sequence[Sent]:
    ready(lab, lambda run: run.sleep("1h"), durable=True)
    executed(lab)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runs_wait SET created_at = created_at - interval '2 h', due_at = due_at - interval '2 h'"
        )
    with recording() as recorder:
        assert waits.end_due(100) == 1
    return recorder.sent


def a_wait_ends_by_an_event(lab: Lab) -> Sequence[Sent]:
    ready(lab, lambda run: run.wait_for_event("order.paid", timeout="1h"), durable=True)
    executed(lab)
    rules = Rules()
    accept([incoming(1)])
    rules.current()
    with recording() as recorder:
        assert dispatch(rules).dispatched == 1
    assert Run.objects.get().status == "queued"
    return recorder.sent


def a_backoff_ends(lab: Lab) -> Sequence[Sent]:
    a_run_is_tried_again(lab)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runs_run SET due_at = clock_timestamp()")
    with recording() as recorder:
        assert timers.wake_due(100) == 1
    return recorder.sent


def a_lost_run_is_handed_on(lab: Lab) -> Sequence[Sent]:
    a_run_is_claimed(lab)
    run = Run.objects.get()
    with connection.cursor() as cursor:
        cursor.execute("RESET application_name")  # a rescuer ends the session of the claim
    with recording() as recorder:
        assert lost(run, "its worker was lost")
    return recorder.sent


def a_queued_run_is_cancelled(lab: Lab) -> Sequence[Sent]:
    ready(lab, lambda run: None)
    run = Run.objects.get()
    with recording() as recorder:
        cancel(run.id, by="test")
    return recorder.sent


def an_emitted_event_is_recorded(lab: Lab) -> Sequence[Sent]:
    ready(lab, lambda run: run.emit("order.shipped", {"id": 1}))
    executed(lab)
    builtin_source("run")  # a process asks for it once
    with recording() as recorder:
        assert outbox.deliver_inside(100)
    return recorder.sent


def the_dispatcher_looks_for_work(lab: Lab) -> Sequence[Sent]:
    with recording() as recorder:
        timers.look()
    return recorder.sent


LEGS: dict[str, Leg] = {
    leg.__name__: leg
    for leg in (
        an_event_is_accepted,
        an_event_becomes_a_run,
        an_event_becomes_a_run_of_a_key,
        a_run_is_claimed,
        a_run_succeeds_and_the_next_is_claimed_along,
        a_run_of_a_key_succeeds,
        a_run_is_tried_again,
        a_run_fails,
        a_durable_run_makes_a_step_and_waits,
        a_wait_ends_by_time,
        a_wait_ends_by_an_event,
        a_backoff_ends,
        a_lost_run_is_handed_on,
        a_queued_run_is_cancelled,
        an_emitted_event_is_recorded,
        the_dispatcher_looks_for_work,
    )
}


@pytest.mark.parametrize("name", LEGS)
def test_the_sql_of_a_leg_is_that_of_its_file(name: str, lab: Lab) -> None:
    statements = [psql(sent) for sent in LEGS[name](lab)]
    written = f"-- {name.replace('_', ' ')}\n\n" + "\n\n".join(statements) + "\n"
    file = FILES / f"{name}.sql"
    if os.environ.get("WRITE"):
        file.write_text(written)

    assert file.read_text() == written


def test_every_file_belongs_to_a_leg() -> None:
    assert {file.stem for file in FILES.iterdir()} == set(LEGS)


@pytest.mark.parametrize("name", LEGS)
def test_the_file_of_a_leg_can_be_pasted_into_psql(name: str, db: None) -> None:
    """Each statement is explained with the examples of its file."""
    for statement in (FILES / f"{name}.sql").read_text().split("\n\n")[1:]:
        examples = {name: unquoted(value) for name, value in SET.findall(statement)}
        text = "\n".join(line for line in statement.splitlines() if not line.startswith(("\\set", "--")))
        text = VARIABLE.sub(lambda found, examples=examples: examples.get(found[1], found[0]), text)  # type: ignore[misc]
        if text.startswith(EXPLAINED):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {text}", None)


def unquoted(value: str) -> str:
    return value.replace("''", "'").replace("\\\\", "\\")
