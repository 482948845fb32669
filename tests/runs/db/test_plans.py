"""Looks that go on all day read what they are after, and nothing of what only waits."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from runs import enqueue, keys, outbox, waits
from runs.chores import timers
from runs.db.sql import Parameters, execute, fetch
from runs.models import NIL, OutboxMessage, Run
from runs.notifications import deliver
from runs.notifications.plan import plan
from tests.support.notifying import make_recipient, notify, statuses
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def steps_of(statement: str, parameters: Parameters, *, is_large: bool = False) -> Iterator[dict[str, Any]]:
    """The steps of the plan that does for any parameters, with what each met."""
    execute("SET LOCAL plan_cache_mode = force_generic_plan")
    if not is_large:
        execute("SET LOCAL enable_seqscan = off")  # of so few rows it would be the cheapest
    [(plan,)] = fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
    steps = [(plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]]
    while steps:
        step = steps.pop()
        steps += step.get("Plans", [])
        yield step


@contextmanager
def undone() -> Iterator[None]:
    """What the block writes and sets is rolled back: the next statement meets the same rows."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@pytest.mark.parametrize("statement", [timers.WAKE, timers.DUE_WITHOUT_PLACE])
def test_waking_passes_over_no_run_that_is_due_later(statement: str) -> None:
    for _ in range(50):
        make_run(ready_at=None, due_at=timezone.now() + timedelta(days=1))

    steps = list(steps_of(statement, [10]))

    assert any("due_at <=" in step.get("Index Cond", "") for step in steps)
    assert not any(step.get("Rows Removed by Filter") for step in steps)


@pytest.mark.parametrize("statement", [outbox.TAKE, outbox.LIST])
def test_delivery_passes_over_no_message_that_is_to_be_sent_later(statement: str) -> None:
    for number in range(50):
        OutboxMessage.objects.create(
            topic="t", key=str(number), payload={}, available_at=timezone.now() + timedelta(days=1)
        )

    steps = list(steps_of(statement, {"topic": "t", "limit": 10}))

    assert any("available_at <=" in step.get("Index Cond", "") for step in steps)
    assert not any(step.get("Rows Removed by Filter") for step in steps)


WAITS: dict[str, tuple[str, Parameters]] = {
    "DUE": (waits.DUE.replace("{limit}", "500"), []),
    "END_DUE": (waits.END_DUE.replace("{limit}", "500"), {}),
    "END_THESE": (waits.END_THESE, {"ids": [1, 2]}),
    "END_BY_EVENT": (waits.END_BY_EVENT, {"ids": [1, 2], "events": [uuid4(), uuid4()]}),
    "END_WITHOUT_CHILDREN": (waits.END_WITHOUT_CHILDREN, {"parents": [uuid4()]}),
    "EVENTS_ARE_AWAITED": (f"SELECT {waits.EVENTS_ARE_AWAITED}", []),
    "SHAPES": (waits.SHAPES, [["bench.awaited"]]),
    "HITS": (waits.HITS.replace("{most}", "500"), [[uuid4()], ["bench.awaited"], ['["number"]'], ["a hash"]]),
    "UNLOOKED_OF": (waits.UNLOOKED_OF, {"run": uuid4()}),
    "UNLOOKED_OF_ALL": (waits.UNLOOKED_OF_ALL, {"limit": 100}),
    "LOOK": (timers.LOOK, timers.parameters()),
}


FEW = 200  # rows of a small table, which PostgreSQL may read by any index


def make_waiting(count: int) -> None:
    """So many runs that wait, for the time, an event of one type or a person."""
    execute(RUNS_THAT_WAIT, [count])
    execute(THEIR_WAITS, [])
    execute("ANALYZE runs_run, runs_wait")


def parameters_of(name: str) -> Parameters:
    given = WAITS[name][1]
    return {**given, "spacing": timedelta(seconds=1)} if isinstance(given, Mapping) else given


RUNS_THAT_WAIT = """
INSERT INTO runs_run (id, queue, agent, version, trigger, event_ids, policy, priority, replay_id, root_id, depth, status, status_reason,
                      attempt, epoch, key_limit, error)
SELECT gen_random_uuid(), 'default', 'a', '1', '', ARRAY[gen_random_uuid()], '{}', 5, gen_random_uuid(), gen_random_uuid(), 0, 'waiting',
       '', 0, 1, 1, '' FROM generate_series(1, %s)
"""
THEIR_WAITS = """
INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, due_at, event_type, match, match_shape, match_hash, children,
                       looked_at)
SELECT id, 'w', 0, false, kind, 'open', now() + interval '30 days', CASE kind WHEN 'event' THEN 'bench.awaited' ELSE '' END, '{}',
       CASE kind WHEN 'event' THEN '["number"]' ELSE '' END, id::text, '{}', now()
FROM (SELECT id, (ARRAY['time', 'event', 'approval'])[1 + (row_number() OVER ())::int %% 3] AS kind FROM runs_run) made
"""


@pytest.mark.parametrize("count", [100, 20_000])
def test_waking_runs_reads_as_little_if_many_wait(count: int) -> None:
    make_waiting(count)
    read_whole, removed = {}, {}
    for name, (statement, _) in WAITS.items():
        with undone():
            steps = list(steps_of(statement, parameters_of(name), is_large=count > 1000))
        read_whole[name] = {step["Relation Name"] for step in steps if step["Node Type"] == "Seq Scan"}
        removed[name] = [step for step in steps if step.get("Rows Removed by Filter", 0) > FEW]

    assert not {name: read for name, read in read_whole.items() if {"runs_run", "runs_wait"} & read}
    assert not {name: steps for name, steps in removed.items() if steps}


def test_statements_that_wake_runs_are_planned_once() -> None:
    """Planning takes longer than the look itself."""
    make_waiting(1000)
    planned = {}
    for name, (statement, _) in WAITS.items():
        with undone():
            for _ in range(12):
                fetch(statement, parameters_of(name))
            # psycopg prepares a statement at its second use, PostgreSQL settles on a plan at the sixth of that.
            [(planned[name],)] = fetch(
                "SELECT custom_plans FROM pg_prepared_statements ORDER BY prepare_time DESC LIMIT 1"
            )

    assert not {name: plans for name, plans in planned.items() if plans > 5}


WAITING_OF_A_KEY = """
INSERT INTO runs_run (id, queue, agent, version, trigger, event_ids, policy, priority, replay_id, root_id, depth, status, status_reason,
                      attempt, epoch, key, key_limit, error)
SELECT gen_random_uuid(), 'default', 'a', '1', '', ARRAY[gen_random_uuid()], '{}', 5, gen_random_uuid(), gen_random_uuid(), 0, 'waiting',
       '', 0, 1, 'busy', 3, '' FROM generate_series(1, 20000)
"""
KEYED: dict[str, tuple[str, Parameters]] = {
    "STATES": (keys.STATES, [["busy"], [3]]),
    "PROMOTE": (keys.PROMOTE, [["busy"]]),
    "KEYS_AFTER": (keys.KEYS_AFTER, {"after": "", "limit": 10}),
    "UNSTARTED": (enqueue.UNSTARTED, {"keys": ["busy"], "replays": [UUID(NIL)], "most": 1000}),
}


def test_a_look_at_a_key_passes_over_none_of_its_waiting_runs() -> None:
    execute(WAITING_OF_A_KEY)
    for due_at in (None, timezone.now() + timedelta(days=1)):
        make_run(key="busy", key_limit=3, ready_at=None, due_at=due_at)
    execute("ANALYZE runs_run")
    read = {}
    for name, (statement, parameters) in KEYED.items():
        with undone():
            steps = [step for step in steps_of(statement, parameters, is_large=True) if "Relation Name" in step]
        read[name] = sum(
            (step["Actual Rows"] + step.get("Rows Removed by Filter", 0)) * step["Actual Loops"] for step in steps
        )

    assert not {name: rows for name, rows in read.items() if rows >= 50}


def test_a_blocked_run_is_not_held_up_by_backoffs_of_its_key_where_several_may_run() -> None:
    backoff = timezone.now() + timedelta(days=1)
    make_run(key="several", key_limit=2, ready_at=None, due_at=backoff)
    make_run(key="one", key_limit=1, ready_at=None, due_at=backoff)
    blocked = [make_run(key=key, key_limit=limit, ready_at=None) for key, limit in (("several", 2), ("one", 1))]

    assert keys.promote(["several", "one"]) == 1

    assert [Run.objects.get(pk=run.pk).slot for run in blocked] == [1, None]


def believe_in_one_row(table: str) -> None:
    """Statistics as a small table has them when it grows; then a sub-SELECT on the inner side of a join looks cheap."""
    execute("UPDATE pg_class SET reltuples = 1, relpages = 1 WHERE relname = %s::text", [table])


def test_one_claim_takes_one_message_of_a_table_that_has_grown() -> None:
    believe_in_one_row("runs_delivery")
    make_recipient("ops")
    for text in ("first", "second", "third"):
        notify(text)
    plan()

    assert deliver.claim_next([])

    assert sorted(statuses()) == ["pending", "pending", "sending"]


@pytest.mark.parametrize("statement", [outbox.TAKE, outbox.RESERVE])
def test_a_batch_of_the_outbox_is_no_larger_than_its_limit(statement: str) -> None:
    believe_in_one_row("runs_outboxmessage")
    for number in range(5):
        OutboxMessage.objects.create(topic="t", key=str(number), payload={}, available_at=timezone.now())

    assert len(fetch(statement, {"topic": "t", "limit": 2, "held": False, "sending": timedelta(minutes=1)})) == 2


def test_a_batch_of_runs_that_wake_is_no_larger_than_its_limit() -> None:
    believe_in_one_row("runs_run")
    for _ in range(5):
        make_run(ready_at=None, due_at=timezone.now() - timedelta(days=1))

    assert execute(timers.WAKE, [2]) == 2


def cost_of(mode: str, statement: str, given: Mapping[str, Any]) -> float:
    """What PostgreSQL expects a prepared statement to cost: with a plan for these parameters, or with one for any."""
    names = list(given)
    numbered = re.sub(r"%\((\w+)\)s", lambda found: f"${names.index(found[1]) + 1}", statement)
    with connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL plan_cache_mode = {mode}")
        cursor.execute(f"PREPARE asked AS {numbered}")
        cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({', '.join(['%s'] * len(names))})", list(given.values()))
        [(plan,)] = cursor.fetchall()
        cursor.execute("DEALLOCATE asked")
    return float((plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]["Total Cost"])


def test_the_look_costs_no_more_with_a_plan_for_any_time_which_is_kept() -> None:
    """A plan that seems dearer than one for these times is made at each look, which takes ten times as long as the look."""
    Run.objects.bulk_create(
        Run(
            agent="greeter", trigger="greeter", trigger_id=uuid4(), event_ids=[uuid4()], id=uuid4(), root_id=uuid4(),
            status="queued", due_at=timezone.now() + timedelta(days=number),
        )
        for number in range(300)
    )  # fmt: skip
    execute("ANALYZE runs_run")
    execute("SET LOCAL enable_seqscan = off")
    given = timers.parameters()

    kept, made = (cost_of(f"force_{one}_plan", timers.LOOK, given) for one in ("generic", "custom"))

    assert kept <= made
