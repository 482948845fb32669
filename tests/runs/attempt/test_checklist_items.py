"""One live run looks at an item of a checklist, whatever triggers share it; the item of a run that ends without a record is due again."""

import threading
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from agents import AgentRun, Checked, Quiet
from agents.checklists.run_checklist import read_checklist
from agents.gate_run import GateRun
from agents.heartbeats.watch import Watch
from agents.models import Checklist, ChecklistItem
from runs.actions.cancel import cancel
from runs.attempt.checklist_items import free_items, held_items
from runs.db.sql import database_now
from runs.models import Run
from tests.support.durable import Lab, lab
from tests.support.runs import make_run
from tests.support.triggers import make_event

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]

TEXTS = ("backups?", "disk?", "queue?")


@pytest.fixture(autouse=True)
def checklist() -> Checklist:
    checklist = Checklist.objects.create(agent="durable")
    for position, text in enumerate(TEXTS):
        every = None if text == "queue?" else timedelta(hours=1)
        ChecklistItem.objects.create(checklist=checklist, text=text, position=position, every=every)
    return checklist


def run_of(trigger: str, **policy: Any) -> Run:
    return make_run(
        event_id=make_event().id, trigger=trigger, agent="durable", policy={"retries": 0, "durable": True, **policy}
    )


class Looks:
    """A body that waits between its look and its record where its trigger sets that, as for an approval or for budget."""

    def __init__(self) -> None:
        self.seen: dict[str, list[str]] = {}

    def __call__(self, run: AgentRun) -> int:
        items = run.checklist.due()
        self.seen[run.trigger] = [item.text for item in items]
        if run.trigger == "slow":
            run.sleep("1h")
        run.checklist.record(*(Checked(item.id, "news", "x") for item in items))
        return len(items)


def test_an_item_that_a_run_looks_at_is_not_due_for_another_run(lab: Lab) -> None:
    looks = Looks()
    lab.declare(looks)
    slow = lab.go_on(run_of("slow"))

    assert slow.status == "waiting"
    assert lab.go_on(run_of("fast")).result == 0
    assert lab.later(slow).result == 3
    assert lab.go_on(run_of("fast")).result == 1  # the item that is due at each run
    assert looks.seen == {"slow": list(TEXTS), "fast": ["queue?"]}
    assert set(ChecklistItem.objects.values_list("held_by", flat=True)) == {None}


def test_the_items_of_a_run_that_ended_without_a_record_are_due_for_the_next_one(lab: Lab) -> None:
    looks = Looks()
    lab.declare(looks)
    slow = lab.go_on(run_of("slow"))
    cancel(slow.pk, by="test")

    assert lab.go_on(run_of("fast")).result == 3


def test_a_run_that_failed_after_its_look_looks_at_its_items_at_its_retry(lab: Lab) -> None:
    seen: list[int] = []

    def body(run: AgentRun) -> None:
        seen.append(len(run.checklist.due()))
        if len(seen) == 1:
            raise ConnectionError("no answer")

    lab.declare(body)
    tried = lab.go_on(run_of("slow", retries=1))
    between = len(free_items(read_checklist("durable", "fast").due))
    lab.later(tried)

    assert (between, seen) == (0, [3, 3])


def test_a_look_in_a_transactional_step_holds_with_the_step(lab: Lab) -> None:
    def body(run: AgentRun) -> int:
        found = run.step("look", lambda: len(run.checklist.due()))
        run.sleep("1h")
        return found

    lab.declare(body)
    lab.go_on(run_of("slow"))

    assert free_items(read_checklist("durable", "fast").due) == []


def test_a_look_in_a_step_that_reads_holds(lab: Lab) -> None:
    def body(run: AgentRun) -> int:
        found = run.step("look", lambda: len(run.checklist.due()), effect="read")
        run.sleep("1h")
        return found

    lab.declare(body)
    lab.go_on(run_of("slow"))

    assert free_items(read_checklist("durable", "fast").due) == []


def test_a_gate_is_quiet_while_another_run_looks_at_what_is_due(lab: Lab) -> None:
    lab.declare(Looks())
    slow = lab.go_on(run_of("slow"))

    def gate_answer() -> Any:
        run = GateRun(agent="durable", trigger="fast", read_events=list, read_now=database_now, free_items=free_items)
        return Watch("durable").ask(run)

    assert gate_answer() == Quiet("another run looks at the items that are due")
    cancel(slow.pk, by="test")
    assert gate_answer() != Quiet("another run looks at the items that are due")


def test_an_atomic_run_has_its_items_until_its_transaction_ends(lab: Lab) -> None:
    seen: list[tuple[int, int]] = []

    def body(run: AgentRun) -> None:
        mine = run.checklist.due()
        seen.append((len(mine), elsewhere()))
        run.checklist.record(*(Checked(item.id, "ok") for item in mine[:1]))

    lab.declare(body, durable=False)
    done = lab.go_on(run_of("slow", durable=False))

    assert (done.status, seen) == ("succeeded", [(3, 0)])
    assert elsewhere() == 2
    assert set(ChecklistItem.objects.values_list("held_by", flat=True)) == {None}


def elsewhere() -> int:
    """How many items another atomic run would look at now."""
    found: list[int] = []

    def act() -> None:
        try:
            with transaction.atomic():
                found.append(len(held_items(uuid4(), read_checklist("durable", "fast").due)))
        finally:
            connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    thread.join()
    return found[0]


def test_runs_that_look_at_the_same_instant_share_the_items(lab: Lab, checklist: Checklist) -> None:
    """Each has read all items as due before one of them holds any."""
    for position in range(30):
        ChecklistItem.objects.create(
            checklist=checklist, text=f"item {position}", position=position + 3, every=timedelta(hours=1)
        )
    due = read_checklist("durable", "").due
    everyone_has_read = threading.Barrier(4)
    held: list[list[int]] = []

    def act(run: Run) -> None:
        try:
            everyone_has_read.wait()
            with transaction.atomic():  # the locks last as long as it does
                held.append([item.id for item in held_items(run.id, due, keeps=True)])
        finally:
            connection.close()

    threads = [threading.Thread(target=act, args=[make_run(agent="durable")]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    late = [item.id for item in held_items(make_run(agent="durable").id, due, keeps=True)]
    all_ids = [id for ids in [*held, late] for id in ids]

    assert len(all_ids) == len(set(all_ids))
    assert set(all_ids) == {item.id for item in due}


def test_an_item_that_was_looked_at_since_it_was_read_is_not_held(lab: Lab) -> None:
    lab.declare(Looks())
    read = read_checklist("durable", "slow").due
    lab.go_on(run_of("fast"))

    assert held_items(make_run(agent="durable").id, read, keeps=True) == []
