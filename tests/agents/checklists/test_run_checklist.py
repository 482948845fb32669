"""`run.checklist` in atomic and durable bodies: one item's failure leaves the others alone."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db.models.functions import Now

from agents import AgentRun, AsyncAgentRun, Checked, DueItem, agent
from agents.models import Checklist, ChecklistItem
from agents.testing import Crashed, Journal, assert_replays, run_agent

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
KINDS = {"atomic": False, "durable": True}


@pytest.fixture(autouse=True)
def checklist() -> Iterator[Checklist]:
    checklist = Checklist.objects.create(agent="ops")
    for position, (text, every) in enumerate([("runs", None), ("backups", HOUR), ("disk", 6 * HOUR)]):
        ChecklistItem.objects.create(checklist=checklist, text=text, every=every, position=position)
    yield checklist


def item(text: str) -> ChecklistItem:
    return ChecklistItem.objects.get(text=text)


@pytest.mark.parametrize("durable", KINDS.values(), ids=KINDS)
def test_one_items_failure_leaves_the_others_alone(durable: bool) -> None:
    def check(one: DueItem) -> str | None:
        if one.text == "backups":
            raise ConnectionError("no answer")
        return "3 failed" if one.text == "runs" else None

    @agent("ops", durable=durable)
    def ops(run: AgentRun) -> list[str]:
        return [one.outcome for one in run.checklist.each(check)]

    done = run_agent(ops)

    assert done.result == ["news", "failed", "ok"]
    found = {one.text: (one.last_outcome, one.last_text) for one in ChecklistItem.objects.all()}
    assert found == {
        "runs": ("news", "3 failed"),
        "backups": ("failed", "ConnectionError: no answer"),
        "disk": ("ok", ""),
    }
    assert set(ChecklistItem.objects.values_list("last_run_id", flat=True)) == {done.journal.run["id"]}


def test_a_failed_statement_spoils_no_other_item() -> None:
    def check(one: DueItem) -> str | None:
        if one.text == "backups":
            Group.objects.create(id="x")
        return None

    @agent("ops")
    def ops(run: AgentRun) -> list[str]:
        return [one.outcome for one in run.checklist.each(check)]

    assert run_agent(ops).result == ["ok", "failed", "ok"]


def test_an_item_is_due_again_after_its_own_interval() -> None:
    @agent("ops", durable=True)
    def ops(run: AgentRun) -> list[str]:
        due = run.checklist.due()
        run.checklist.record(*(Checked(one.id, "ok") for one in due))
        return [one.text for one in due]

    first, second = run_agent(ops).result, run_agent(ops).result
    backups = item("backups")

    assert (first, second) == (["runs", "backups", "disk"], ["runs"])
    assert backups.last_checked_at is not None
    assert timedelta() < backups.due_at - backups.last_checked_at <= HOUR


def test_failures_in_a_row_are_counted() -> None:
    outcomes: list[Any] = ["failed", "failed", "ok", "failed"]
    seen: list[int] = []

    @agent("ops", durable=True)
    def ops(run: AgentRun) -> None:
        [runs, *_] = run.checklist.due()
        seen.append(runs.failures)
        run.checklist.record(Checked(runs.id, outcomes[len(seen) - 1]))

    for _ in outcomes:
        run_agent(ops)

    assert seen == [0, 1, 2, 0]
    assert item("runs").failures_in_a_row == 1


def test_a_replay_sees_the_same_items_and_records_once() -> None:
    journal = Journal()

    @agent("ops", durable=True)
    def ops(run: AgentRun) -> list[str]:
        due = run.checklist.due()
        run.checklist.record(*(Checked(one.id, "failed") for one in due))
        return [one.text for one in due]

    with pytest.raises(Crashed):
        run_agent(ops, journal=journal, crash_after="checked#1")
    ChecklistItem.objects.filter(text="disk").delete()
    done = run_agent(ops, journal=journal)

    assert done.result == ["runs", "backups", "disk"]
    assert item("runs").failures_in_a_row == 1
    assert_replays(done)


def test_an_item_that_was_deleted_meanwhile_is_left_out() -> None:
    @agent("ops")
    def ops(run: AgentRun) -> None:
        due = run.checklist.due()
        ChecklistItem.objects.filter(text="runs").delete()
        run.checklist.record(*(Checked(one.id, "ok") for one in due))

    run_agent(ops)

    assert set(ChecklistItem.objects.values_list("last_outcome", flat=True)) == {"ok"}


def test_an_async_body_reads_and_records() -> None:
    @agent("ops", durable=True)
    async def ops(run: AsyncAgentRun) -> Any:
        due = await run.checklist.due()
        await run.checklist.record(*(Checked(one.id, "ok") for one in due))
        return [len(due), await run.checklist.is_empty(), await run.checklist.next_in() is not None]

    assert run_agent(ops).result == [3, False, True]


def test_the_next_wake_is_that_of_the_first_item_with_an_interval() -> None:
    ChecklistItem.objects.update(due_at=Now() + 3 * HOUR)
    ChecklistItem.objects.filter(text="backups").update(due_at=Now() + HOUR)

    @agent("ops")
    def ops(run: AgentRun) -> Any:
        left = run.checklist.next_in()
        return left and left.total_seconds()

    assert 3500 < run_agent(ops).result <= 3600


def test_an_agent_without_a_checklist_has_nothing_due() -> None:
    @agent("bare")
    def bare(run: AgentRun) -> Any:
        return [run.checklist.due(), run.checklist.is_empty(), run.checklist.next_in()]

    assert run_agent(bare).result == [[], True, None]


def test_a_wrong_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="not one of ok, news, failed"):
        Checked(1, "fine")  # type: ignore[arg-type]
