"""All attempts of a run are there to be read, though the row of an atomic run that succeeded says all of its last one."""

import pytest

from agents import AgentRun
from runs.db.sql import execute
from runs.models import Attempt, AttemptRow
from tests.support.durable import Lab, lab

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_attempt_of_an_atomic_success_has_no_row_and_is_listed_after_those_before(lab: Lab) -> None:
    tries = []

    def body(run: AgentRun) -> None:
        tries.append(run.id)
        if len(tries) == 1:
            raise ValueError("not yet")

    run = lab.later(lab.run(body, declared={"durable": False}, policy={"durable": False, "retries": 1}))

    first, last = run.attempts.all()
    assert (first.number, first.outcome, last.number, last.outcome) == (1, "failed", 2, "succeeded")
    assert (last.epoch, last.worker_id, last.pid) == (run.epoch, run.worker_id, run.pid)
    assert (last.started_at, last.ended_at) == (run.claimed_at, run.finished_at)
    assert AttemptRow.objects.get().outcome == "failed"


def test_the_code_of_before_stores_and_removes_attempts(lab: Lab) -> None:
    """Both versions run during an upgrade; a success that the code of before has stored is listed once."""
    run = lab.run(lambda run: None, declared={"durable": False}, policy={"durable": False})
    execute(
        """INSERT INTO runs_attempt (run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback)
        SELECT id, epoch, attempt, worker_id, pid, claimed_at, finished_at, 'succeeded', '', '' FROM runs_run"""
    )
    assert [(one.pk is not None, one.outcome) for one in run.attempts.all()] == [(True, "succeeded")]

    Attempt.objects.update(error="of the code of before")
    assert AttemptRow.objects.get().error == "of the code of before"

    execute("DELETE FROM runs_attempt WHERE run_id = ANY(%s::uuid[])", [[run.pk]])
    assert not AttemptRow.objects.exists()


def test_a_success_with_a_journal_has_a_row_as_progress_changed_its_count(lab: Lab) -> None:
    run = lab.run(lambda run: run.step("one", int))

    assert (run.status, run.attempt) == ("succeeded", 0)
    assert [(one.pk is not None, one.number, one.outcome) for one in run.attempts.all()] == [(True, 1, "succeeded")]
