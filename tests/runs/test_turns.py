"""Claims: the triggers of one priority take turns, and the keys of one trigger; runs that no worker can execute cost nothing, nor do
those claimed before."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction
from django.db.models import TextField, Value
from django.db.models.functions import Cast, Concat, Now
from django.utils import timezone
from uuid_utils.compat import uuid7

from agents.kernel.ids import run_id
from runs import keys
from runs.actions.requeue import requeue
from runs.chores import timers
from runs.claim import CLAIM_ALONG, CLAIM_FIRST, Nothing, _parameters, claim_along, claim_next, found_of
from runs.db import ready_runs
from runs.db.sql import Parameters, execute, fetch, fetch_as
from runs.enqueue import IS_FREE, NewRun, enqueue, insertion
from runs.models import NIL, Run, Worker
from runs.models.policy import Policy
from runs.queues import doorbell
from runs.queues.state import all_queues
from runs.states import RunStatus
from runs.transitions.leave import leave, take_away
from runs.transitions.outcome import Outcome, Ticket
from tests.runs.test_look_back import PAST
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.matching import pending
from triggers.models import Event

pytestmark = pytest.mark.django_db(transaction=True)

AGENTS = {"one": "1", "other": "1"}
MADE = """
INSERT INTO runs_run (id, queue, agent, version, trigger, event_ids, policy, priority, replay_id, root_id, depth, status, status_reason,
                      ready_at, attempt, epoch, key_limit, error)
SELECT gen_random_uuid(), 'default', %s, '1', '', ARRAY[gen_random_uuid()], '{}', 5, gen_random_uuid(), gen_random_uuid(), 0, 'queued',
       '', now(), 0, 0, 1, '' FROM generate_series(1, %s)
"""
ALL_CLAIMED = """
UPDATE runs_run SET status = 'running', ready_at = NULL, worker_id = gen_random_uuid(), pid = 1, claimed_at = now(), deadline_at = now(),
  epoch = 1, attempt = 1 WHERE status = 'queued'
"""


@pytest.fixture
def worker() -> Iterator[Worker]:
    ready_runs.hints.by_queue.clear()
    yield Worker.objects.create(
        id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1, agents=list(AGENTS), queues=["default"]
    )
    ready_runs.hints.by_queue.clear()


def woken(
    trigger: str, count: int = 1, agent: str = "one", key: str | None = None, is_placed: bool = True, **policy: Any
) -> None:
    """So many runs of a trigger, dispatched together; with a key the first of it has its place."""
    runs = []
    is_free = is_placed and key is not None and not Run.objects.filter(key=key, slot=1).exists()
    for number, event_id in enumerate(uuid7() for _ in range(count)):
        runs.append(
            NewRun(
                id=run_id(uuid4(), event_id, UUID(NIL)),
                agent=agent,
                trigger=trigger,
                trigger_id=uuid4(),
                event_ids=[event_id],
                policy=Policy(**policy),
                root_id=event_id,
                replay_id=UUID(NIL),
                key=key,
                slot=1 if is_free and not number else None,
            )  # fmt: skip
        )
    with transaction.atomic():
        enqueue(runs)


def claimed(worker: Worker, count: int) -> list[str]:
    """The triggers (or agents) of the next claims."""
    found = []
    for _ in range(count):
        Worker.objects.filter(pk=worker.pk).update(seen_at=Now())
        claim = claim_next(worker.id, "default", AGENTS)
        assert claim
        found.append(claim.trigger or claim.agent)
        Run.objects.filter(pk=claim.run_id).update(status="succeeded", finished_at=Now())
    return found


def executed(worker: Worker, count: int) -> list[str]:
    """The keys (or triggers) of the next runs, each claimed when the one before it has ended."""
    found = []
    for _ in range(count):
        Worker.objects.filter(pk=worker.pk).update(seen_at=Now())
        claim = claim_next(worker.id, "default", AGENTS)
        assert claim
        found.append(claim.key or claim.trigger)
        with transaction.atomic():
            leave(claim.ticket, Outcome(status=RunStatus.SUCCEEDED))
    return found


def touched(statement: str, parameters: Parameters) -> int:
    """Buffers that a statement touches, by the plan for any parameters."""
    with transaction.atomic():
        execute("SET LOCAL plan_cache_mode = force_generic_plan")
        [(plan,)] = fetch(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
        transaction.set_rollback(True)
    [top] = plan if isinstance(plan, list) else json.loads(plan)
    return int(top["Plan"]["Shared Hit Blocks"] + top["Plan"]["Shared Read Blocks"])


@contextmanager
def old_snapshot() -> Iterator[None]:
    names = ("host", "port", "user", "password", "dbname")
    parameters = {name: value for name, value in connection.get_connection_params().items() if name in names}
    with psycopg.connect(**parameters) as other:
        other.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        other.execute("SELECT count(*) FROM runs_run")
        yield
        other.rollback()


def test_a_backlog_of_one_trigger_leaves_every_other_its_turn(worker: Worker) -> None:
    woken("greedy", 100)
    woken("modest", 3)
    woken("late", 1, agent="other")

    assert claimed(worker, 8) == ["greedy", "modest", "late", "greedy", "modest", "greedy", "modest", "greedy"]


def test_a_run_that_finds_no_other_one_ready_is_inserted_once_and_comes_next(worker: Worker) -> None:
    new = NewRun(
        id=run_id(uuid4(), uuid7(), UUID(NIL)), agent="one", trigger="first", trigger_id=uuid4(), event_ids=[uuid4()],
        policy=Policy(queue="fast"), root_id=uuid4(), replay_id=UUID(NIL), input={"a": [1]}, has_input=True, chain=['a "b", c'],
    )  # fmt: skip
    with transaction.atomic():
        execute(*insertion([new], "fast"))
        execute(*insertion([new], "fast"))
    [run] = Run.objects.all()
    assert run.turn == run.seq
    assert (run.queue, run.input, run.chain, run.event_ids) == ("fast", {"a": [1]}, ['a "b", c'], new.event_ids)

    woken("second", 2)
    woken("third")  # finds those of the second
    assert claimed(worker, 3) == ["second", "third", "second"]


def test_whether_another_run_is_ready_is_one_step_down_the_index_beside_any_number_of_runs() -> None:
    with connection.cursor() as cursor:
        cursor.execute(MADE, ["one", 3000])
        cursor.execute(ALL_CLAIMED)
        cursor.execute("VACUUM runs_run")
        cursor.execute(MADE, ["one", 20])
    asked = f"SELECT {IS_FREE.format(queue='%s::text')}"
    assert fetch(asked, ["default"]) == [(False,)]
    assert touched(asked, ["default"]) < 20


def test_earlier_runs_of_a_trigger_do_not_count(worker: Worker) -> None:
    woken("busy", 50)
    claimed(worker, 50)
    woken("new", 3)
    woken("busy", 3)

    assert sorted(claimed(worker, 2)) == ["busy", "new"]
    assert sorted(claimed(worker, 2)) == ["busy", "new"]


def test_turns_go_on_where_the_batch_before_left_them(worker: Worker) -> None:
    for _ in range(10):
        woken("greedy", 5)
    woken("modest", 2)

    assert claimed(worker, 4).count("modest") == 2


def test_the_keys_of_a_trigger_take_turns(worker: Worker) -> None:
    woken("invoices", 6, key="greedy")
    woken("invoices", 2, key="modest")
    woken("invoices", 1, key="late")

    assert executed(worker, 7) == ["greedy", "modest", "late", "greedy", "modest", "greedy", "greedy"]


def test_many_keys_of_a_trigger_leave_every_other_trigger_its_turn(worker: Worker) -> None:
    for number in range(20):
        woken("invoices", 3, key=f"customer {number}")
    woken("reports", 3)
    woken("late", 1)

    order = executed(worker, 7)
    assert order.count("reports") == 3
    assert order.count("late") == 1


def test_a_trigger_with_one_busy_key_has_its_turn_beside_a_backlog(worker: Worker) -> None:
    woken("reports", 50)
    woken("invoices", 4, key="one customer")

    assert executed(worker, 8).count("one customer") >= 3


def test_a_trigger_without_a_key_has_its_turn_beside_a_busy_key(worker: Worker) -> None:
    woken("invoices", 40, key="one customer")
    woken("reports", 40)

    assert 9 <= executed(worker, 20).count("reports") <= 11


def test_a_key_whose_runs_are_taken_away_keeps_its_turn(worker: Worker) -> None:
    woken("invoices", 3, key="cancelled")
    woken("invoices", 1, key="other")
    woken("reports", 20)
    first = Run.objects.get(key="cancelled", slot=1)

    ticket = Ticket(run_id=first.id, epoch=0, claim=None, key=first.key, slot=1)
    assert take_away(ticket, Outcome(status=RunStatus.CANCELLED), expected=RunStatus.QUEUED)

    assert sorted(set(executed(worker, 5))) == ["cancelled", "other", "reports"]


def test_a_run_that_replaces_another_is_not_put_behind_the_backlog_of_other_triggers(worker: Worker) -> None:
    woken("reports", 100)
    woken("invoices", 1, key="replaced")
    Run.objects.filter(key="replaced").update(slot=None, ready_at=None, status="cancelled", finished_at=Now())
    with transaction.atomic():
        keys.lock("replaced")
        woken("invoices", 1, key="replaced", is_placed=False)
        keys.promote(["replaced"])

    assert "replaced" in executed(worker, 5)


def test_a_key_that_was_held_for_long_makes_up_for_nothing(worker: Worker) -> None:
    woken("invoices", 1, key="held")
    claim = claim_next(worker.id, "default", AGENTS)
    assert claim
    for _ in range(50):
        woken("reports", 1)
        Run.objects.filter(trigger="reports").update(status="cancelled", ready_at=None, finished_at=Now())
    woken("reports", 20)
    woken("invoices", 30, key="held")
    with transaction.atomic():
        leave(claim.ticket, Outcome(status=RunStatus.SUCCEEDED))

    assert executed(worker, 20).count("reports") >= 9


def test_a_run_that_backs_off_again_and_again_keeps_its_turn(worker: Worker) -> None:
    woken("invoices", 1, key="retried")
    for _ in range(60):
        Run.objects.filter(key="retried").update(slot=None, ready_at=None, due_at=Now() - timedelta(seconds=1))
        timers.wake_due(10)
    woken("reports", 50)
    woken("invoices", 1, key="new")

    assert {"retried", "new"} <= set(executed(worker, 5))


def test_a_promotion_by_version_n_and_a_requeue_draw_no_other_run_of_the_trigger_back(worker: Worker) -> None:
    woken("reports", 100)
    for number in range(4):
        woken("invoices", 5, key=f"customer {number}")
    Run.objects.filter(key="customer 0", slot=1).update(slot=None, ready_at=None, status="cancelled", finished_at=Now())
    by_version_n = Run.objects.filter(key="customer 0", status="queued").earliest("seq")
    Run.objects.filter(pk=by_version_n.pk).update(ready_at=Now(), slot=1)
    requeue(make_run(trigger="invoices", agent="one", key="requeued", status="cancelled").pk, by="test")

    assert executed(worker, 30).count("reports") in range(13, 18)


def test_keys_that_fall_due_together_get_a_turn_each(worker: Worker) -> None:
    for number in range(20):
        woken("invoices", 1, key=f"customer {number}")
    Run.objects.update(key_limit=2, slot=None, ready_at=None, due_at=Now() - timedelta(seconds=1), turn=None)
    woken("reports", 20)
    timers.wake_due(20)

    assert executed(worker, 20).count("reports") in range(9, 12)


def test_a_turn_in_one_queue_does_not_count_in_another(worker: Worker) -> None:
    woken("reports", 100)
    woken("invoices", 1, key="moved", queue="other")
    woken("invoices", 1, key="moved")
    Worker.objects.filter(pk=worker.pk).update(seen_at=Now(), queues=["default", "other"])
    claim = claim_next(worker.id, "other", AGENTS)
    assert claim
    with transaction.atomic():
        leave(claim.ticket, Outcome(status=RunStatus.SUCCEEDED))

    assert "moved" in executed(worker, 5)


def test_under_an_old_snapshot_the_next_of_a_key_steps_over_no_run_that_was_claimed_before(worker: Worker) -> None:
    with old_snapshot():
        woken("invoices", 10_000)
        Run.objects.update(key=Concat(Value("key "), Cast("seq", TextField())), slot=1)
        execute(ALL_CLAIMED.replace("pid = 1", "pid = (random() * 2000000000)::int"))
        woken("invoices", 2, key="busy")
        execute("ANALYZE runs_run")
        first = Run.objects.get(key="busy", slot=1)
        placed = keys.PLACED.replace("{next}", keys.NEXT).replace("{since}", "%(since)s::bigint")
        placed = placed.replace("{freed}", "(SELECT %(key)s::text AS key, %(id)s::uuid AS id)")

        assert touched(placed, {"key": "busy", "id": first.pk, "since": first.turn}) < 200
        assert touched(placed, {"key": "busy", "id": first.pk, "since": 0}) > 300


def test_the_most_urgent_run_comes_first_and_the_runs_of_a_trigger_in_their_order(worker: Worker) -> None:
    woken("ordinary", 3)
    woken("urgent", 2, agent="other", priority=0)
    order = list(Run.objects.order_by("seq").values_list("trigger", flat=True))

    assert order == ["ordinary"] * 3 + ["urgent"] * 2
    assert claimed(worker, 5) == ["urgent"] * 2 + ["ordinary"] * 3


def test_a_run_of_version_n_has_no_turn_and_its_place_is_its_seq(worker: Worker) -> None:
    execute(MADE, ["one", 1])
    woken("newer")

    assert claimed(worker, 2) == ["one", "newer"]


@contextmanager
def first_claimed_elsewhere(count: int) -> Iterator[None]:
    names = ("host", "port", "user", "password", "dbname")
    parameters = {name: value for name, value in connection.get_connection_params().items() if name in names}
    with psycopg.connect(**parameters) as other:
        other.execute("SELECT FROM runs_run ORDER BY seq LIMIT %s FOR UPDATE", [count])
        yield
        other.rollback()


def test_where_all_first_runs_are_being_claimed_the_next_is_found(worker: Worker) -> None:
    execute(MADE, ["one", 20])

    with first_claimed_elsewhere(15):
        claim = claim_next(worker.id, "default", AGENTS)

    assert claim
    assert Run.objects.filter(seq__lt=Run.objects.get(pk=claim.run_id).seq).count() == 15


def test_where_all_first_runs_are_being_claimed_no_run_of_a_lower_priority_is_claimed_before_the_next(
    worker: Worker,
) -> None:
    execute(MADE, ["one", 20])
    woken("idle", agent="other", priority=9)

    with first_claimed_elsewhere(15):
        with transaction.atomic():
            [along] = fetch_as(found_of, CLAIM_ALONG, claim_along(worker.id, "default", AGENTS).parameters)
            transaction.set_rollback(True)
        claim = claim_next(worker.id, "default", AGENTS)

    assert along == Nothing("locked")
    assert claim
    assert claim.agent == "one"


def test_runs_of_an_agent_that_no_worker_has_cost_claims_and_rings_nothing(worker: Worker) -> None:
    execute(MADE, ["one", 1])
    costs = []
    for unknown in (0, 20_000):
        execute(MADE, ["gone", unknown])
        execute("ANALYZE runs_run")
        rings = {"lease": settings.WAKEFUL_LEASE, "rings": 1, "queue": None}
        costs.append((touched(CLAIM_FIRST, _parameters(worker.id, "default", AGENTS)), touched(doorbell.WANTED, rings)))

    (claim_before, rings_before), (claim_after, rings_after) = costs
    assert claim_after < claim_before + 30
    assert rings_after < rings_before + 30
    assert {queue.name: queue.homeless for queue in all_queues()}["default"] == 1000
    assert claimed(worker, 1) == ["one"]


def test_entries_that_an_old_snapshot_keeps_are_stepped_over_once_a_second_not_by_every_claim(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ready_runs, "HINTED", 3600.0)
    with old_snapshot():
        execute(MADE, ["one", 20_000])
        execute(ALL_CLAIMED.replace("pid = 1", "pid = (random() * 2000000000)::int"))
        execute("ANALYZE runs_run")
        execute(MADE, ["one", 3])
        from_the_beginning = touched(CLAIM_FIRST, _parameters(worker.id, "default", AGENTS))
        monkeypatch.setattr(ready_runs.hints, "slow", 0.0)
        claimed(worker, 1)
        hinted = touched(CLAIM_FIRST, _parameters(worker.id, "default", AGENTS))
        rings = touched(doorbell.WANTED, {"lease": settings.WAKEFUL_LEASE, "rings": 1, "queue": None})

        assert hinted < from_the_beginning / 5
        assert rings < from_the_beginning / 5

        # It is a hint: a run in front of it is found as soon as there is nothing behind it, or the hint is a second old.
        claimed(worker, 2)
        Run.objects.filter(pk=Run.objects.earliest("seq").pk).update(status="queued", ready_at=Now())
        assert claimed(worker, 1) == ["one"]


def test_under_an_old_snapshot_a_look_steps_over_what_was_done_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timers, "since", timers.Since(slow=0.0))
    monkeypatch.setattr(timers, "HINTED", 3600.0)
    with old_snapshot():
        execute(MADE, ["one", 20_000])
        execute("UPDATE runs_run SET ready_at = NULL, due_at = now() - interval '1 day'")
        execute("UPDATE runs_run SET due_at = NULL, status = 'cancelled', finished_at = now()")
        execute("ANALYZE runs_run")
        from_the_beginning = touched(timers.LOOK, timers.parameters())
        timers.read_run_timers()
        hinted = touched(timers.LOOK, timers.parameters(timers.since.hint()))
        assert hinted < from_the_beginning / 5

        # What falls due from now on is seen at once, and nothing is left out for longer than the hint lasts.
        make_run(ready_at=None, due_at=timezone.now())
        assert timers.is_due(timers.read_run_timers().due)
        Run.objects.filter(status="queued").update(due_at=timezone.now() - timedelta(days=1))
        seen_by_the_hint = timers.read_run_timers()
        assert seen_by_the_hint.due is None
        assert seen_by_the_hint.again
        timers.since.until = 0.0
        assert timers.is_due(timers.read_run_timers().due)


def test_under_an_old_snapshot_events_are_read_from_where_they_began_a_moment_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pending, "first", pending.First(slow=0.0))
    monkeypatch.setattr(pending, "HINTED", 3600.0)
    earlier, *later = (make_event() for _ in range(3))
    Event.objects.filter(pk=earlier.pk).update(dispatched_at=timezone.now())
    parameters = {"limit": 10, "half": 5, "but_events": [], "but_redispatches": [], "nil": UUID(NIL)}
    anyhow = touched(pending.NEXT, {**parameters, "from": 0})  # of other tables, which other tests have grown
    with old_snapshot():
        execute(PAST.replace("now() FROM", "NULL FROM"), [20_000])
        execute("UPDATE triggers_event SET dispatched_at = now() WHERE dispatched_at IS NULL AND type = 'paid'")
        Event.objects.filter(pk__in=[event.pk for event in later]).update(dispatched_at=timezone.now())
        execute("ANALYZE triggers_event")
        new = make_event()
        from_the_beginning = touched(pending.NEXT, {**parameters, "from": 0})
        assert [item.event_id for item in pending.read_items(10)] == [new.pk]

        hinted = touched(pending.NEXT, {**parameters, "from": pending.first.hint()})
        assert hinted - anyhow < (from_the_beginning - anyhow) / 5

        # A hint only: an event in front of it is read as soon as there is none behind it.
        Event.objects.filter(pk=new.pk).update(dispatched_at=timezone.now())
        Event.objects.filter(pk=earlier.pk).update(dispatched_at=None)
        assert [item.event_id for item in pending.read_items(10)] == [earlier.pk]
