"""A look back for what came before a wait is made to its end, however often it fails and however much there is to read."""

import time
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models.functions import Now

from agents import AgentRun
from config.health.problems import problems
from config.health.situation import read_situation
from runs import waits
from runs.chores import timers
from runs.db.sql import execute, fetch
from runs.models import Run, Wait
from runs.ports import ports
from tests.runs.db.test_plans import steps_of
from tests.support.durable import Lab, lab
from tests.support.triggers import make_event
from triggers import accept
from triggers.events import read as events
from triggers.models import Event

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

SLOW = events.FIND.replace("SELECT (\n", "SELECT pg_sleep(2) IS NULL, (\n", 1)
# `n` more dispatched events of one type that no wait below matches.
PAST = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, body_sha256, root_id, depth, dispatched_at)
SELECT gen_random_uuid(), (SELECT min(id::text)::uuid FROM triggers_source), 'past', n::text, 'paid', '', '{"n": 0}', '', '',
       gen_random_uuid(), 0, now() FROM generate_series(1, %s) n
"""


def paid(run: AgentRun) -> Any:
    event = run.wait_for_event("paid", match={"n": 1}, timeout="1d")
    return event and event.data["n"]


def came(**fields: Any) -> Event:
    event = make_event(type="paid", data={"n": 1}, **fields)
    Event.objects.filter(pk=event.pk).update(dispatched_at=Now())
    return event


def waiting(lab: Lab, before: Any = lambda: None) -> Run:
    """A run that waits for what has come already, and whose look back is still to be done."""

    def body(run: AgentRun) -> Any:
        run.step("provoke", lambda: before() and None)
        return paid(run)

    with lab.monkeypatch.context() as held:
        held.setattr("runs.executor.look_back", lambda *_: None)
        held.setattr("runs.durable.store.find_early", lambda *_, **__: None)
        return lab.run(body)


def due_again() -> None:
    Wait.objects.exclude(look_after=None).update(look_after=Now())


def test_a_look_back_that_times_out_is_owed_until_it_succeeds_and_the_wait_does_not_expire(lab: Lab) -> None:
    run = waiting(lab, came)
    with lab.monkeypatch.context() as slow:
        slow.setattr(events, "FIND", SLOW)
        assert waits.look_back() == 0

    wait = Wait.objects.get(run=run)
    assert (wait.status, wait.looked_at, wait.look_failures) == ("open", None, 1)
    assert "timeout" in wait.look_error
    assert waits.look_back() == 0  # not before its pause is over
    assert lab.later(run).status == "waiting"

    due_again()
    assert waits.look_back() == 1
    assert lab.go_on(run).result == 1


def test_the_pause_after_a_failed_look_grows(lab: Lab) -> None:
    run = waiting(lab)
    lab.monkeypatch.setattr(ports, "find_event", lambda sought: 1 / 0)
    pauses = []
    for _ in range(10):
        waits.look_back()
        pauses += fetch("SELECT extract(epoch FROM look_after - clock_timestamp())::int FROM runs_wait")
        due_again()

    assert pauses[0][0] <= 2
    assert [pause for (pause,) in pauses] == sorted(pause for (pause,) in pauses)
    assert pauses[-1][0] <= waits.LONGEST_PAUSE.total_seconds()
    assert Wait.objects.get(run=run).looked_at is None


def test_a_long_search_reads_a_page_at_a_time_and_keeps_its_progress(lab: Lab) -> None:
    run = waiting(lab, lambda: (execute(PAST, [7]), came()))
    lab.monkeypatch.setattr(waits, "PAGE", 2)
    lab.monkeypatch.setattr(waits, "BUDGET", -1)  # one page a look
    looked_to: list[int] = []
    looks = 0
    while not waits.look_back():
        looks += 1
        looked_to.append(Wait.objects.get(run=run).looked_to or 0)

    assert looks == 3
    assert looked_to == sorted(set(looked_to))
    assert lab.go_on(run).result == 1


def test_a_page_that_is_too_much_is_read_in_halves(lab: Lab) -> None:
    run = waiting(lab, lambda: (execute(PAST, [20]), came()))
    find = ports.find_event

    def find_few(sought: Any) -> Any:
        if sought.most > 4:
            raise ValueError("too much")
        return find(sought)

    lab.monkeypatch.setattr(ports, "find_event", find_few)
    for _ in range(200):
        if waits.look_back():
            break
        due_again()

    assert lab.go_on(run).result == 1


def test_a_long_search_keeps_no_other_wait_from_its_look(lab: Lab) -> None:
    execute(PAST, [1])
    first = waiting(lab, lambda: execute(PAST.replace("'past'", "'more'"), [9]))
    lab.monkeypatch.setattr(waits, "PAGE", 1)
    lab.monkeypatch.setattr(waits, "BUDGET", -1)
    waits.look_back()
    second = waiting(lab, came)

    assert waits.look_back() == 1

    assert Wait.objects.get(run=second, kind="event").status == "done"
    assert Wait.objects.get(run=first, kind="event").looked_at is None


def test_an_event_accepted_by_a_host_whose_clock_is_behind_is_found(lab: Lab) -> None:
    def id_of_six_minutes_ago() -> UUID:
        return UUID(int=(int((time.time() - 360) * 1000) << 80) | (7 << 76) | (2 << 62) | 12345)

    def came_there() -> None:
        with lab.monkeypatch.context() as behind:
            behind.setattr(accept, "uuid7", id_of_six_minutes_ago)
            came()

    run = waiting(lab, came_there)

    assert waits.look_back() == 1
    assert lab.go_on(run).result == 1


def test_a_page_is_all_that_a_search_reads_of_many_events(lab: Lab) -> None:
    run = waiting(lab)
    execute(PAST, [20_000])
    execute("ANALYZE triggers_event")
    wait = Wait.objects.get(run=run, kind="event")
    parameters = {
        "type": "paid", "match": '{"n": 1}', "but": [], "after": run.event_ids[0], "root": run.root_id, "since": run.created_at,
        "searched_to": wait.looked_to, "most": 100, "end": events.END, "source": "",
    }  # fmt: skip

    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("BEGIN")
        steps = list(steps_of(events.FIND, parameters, is_large=True))
        cursor.execute("ROLLBACK")

    read = sum(step["Actual Rows"] + step.get("Rows Removed by Filter", 0) for step in steps if "Relation Name" in step)
    assert read < 300


def test_looks_that_fail_are_a_problem_with_a_remedy(lab: Lab, settings: Any) -> None:
    waiting(lab)
    lab.monkeypatch.setattr(ports, "find_event", lambda sought: 1 / 0)
    for _ in range(2):
        waits.look_back()
        due_again()

    [problem] = [one for one in problems(read_situation()) if one.name == "looks-owed"]

    assert "1 wait" in problem.text
    assert "ZeroDivisionError" in problem.text
    assert problem.remedy


def test_the_dispatcher_comes_back_when_a_pause_is_over(lab: Lab) -> None:
    waiting(lab)
    lab.monkeypatch.setattr(ports, "find_event", lambda sought: 1 / 0)
    waits.look_back()

    due = timers.read_run_timers().look_back

    assert due is not None
    assert 0 < due.total_seconds() <= 2


def test_where_one_page_is_not_all_the_process_that_waits_looks_back_page_by_page(lab: Lab) -> None:
    def body(run: AgentRun) -> Any:
        run.step("provoke", lambda: execute(PAST, [10]) and None)
        return paid(run)

    lab.monkeypatch.setattr(waits, "PAGE", 3)
    lab.monkeypatch.setattr("runs.durable.store.find_early", lambda *_, **__: None)

    run = lab.run(body)

    assert run.status == "waiting" and Wait.objects.get().looked_at
