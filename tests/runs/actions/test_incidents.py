"""What people do to an incident: requeue what it covers, once, and close it."""

import threading
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from runs import keys
from runs.actions.fork import fork
from runs.actions.incidents import close_incident, last_covered, requeue_incident
from runs.actions.requeue import requeue
from runs.exceptions import IllegalState
from runs.incidents.note import Failed, note
from runs.models import NIL, AuditEntry, Incident, ProcessedEvent, Run, Worker
from runs.states import RunStatus
from tests.support.console import make_incident
from tests.support.incidents import NO, fail, notification_texts, thing
from tests.support.runs import make_run, statuses

pytestmark = pytest.mark.django_db


def failed_run(**fields: Any) -> Run:
    return make_run(status=RunStatus.FAILED, error=NO, **fields)


def cover(*runs: Run) -> Incident:
    note([Failed(thing=thing(), error=NO, run_id=run.pk, is_covered=True) for run in runs])
    return Incident.objects.get()


def fail_again(run: Run, worker: Worker) -> None:
    now, runs = timezone.now(), Run.objects.filter(pk=run.pk)
    runs.update(status=RunStatus.RUNNING, ready_at=None, worker=worker, pid=1, claimed_at=now, deadline_at=now)
    runs.update(status=RunStatus.FAILED, finished_at=now)
    cover(run)


def test_every_run_that_is_still_failed_is_requeued_once() -> None:
    runs = [failed_run() for _ in range(7)]
    incident = cover(*runs)
    requeue(runs[0].pk, by="ada")

    done = requeue_incident(incident.pk, by="ada", batch=3)

    assert (done.runs, done.refused, done.left) == (6, 0, False)
    assert set(statuses()) == {"queued"}
    assert Run.objects.exclude(ready_at=None).count() == 7
    assert AuditEntry.objects.filter(kind="run", action="requeue", by="ada").count() == 7
    assert [entry.detail["runs"] for entry in AuditEntry.objects.filter(kind="incident").order_by("id")] == [3, 3]


def test_a_second_click_requeues_no_run_that_has_failed_again(worker: Worker) -> None:
    run, other = failed_run(), failed_run()
    incident = cover(run, other)
    seen = last_covered(incident.pk)

    assert requeue_incident(incident.pk, upto=seen, by="ada").runs == 2
    fail_again(run, worker)
    assert requeue_incident(incident.pk, upto=seen, by="ada").runs == 0

    assert requeue_incident(incident.pk, by="ada").runs == 1  # after a second look at the page
    assert incident.covered.count() == 2


def test_runs_whose_work_is_done_or_goes_on_elsewhere_are_refused() -> None:
    processed, forked, erased, succeeded, good = (failed_run() for _ in range(5))
    ProcessedEvent.objects.create(
        event_id=processed.event_ids[0], consumer=processed.trigger, replay_id=UUID(NIL), run_id=uuid4()
    )
    incident = cover(processed, forked, erased, succeeded, good)
    fork(forked.pk, step="", by="ada")
    Run.objects.filter(pk=erased.pk).update(payload_removed_at="2026-01-01T00:00Z")
    Run.objects.filter(pk=succeeded.pk).delete()

    done = requeue_incident(incident.pk, by="ada")

    assert (done.runs, done.refused) == (1, 3)
    good.refresh_from_db()
    assert good.status == "queued"


def test_runs_of_a_key_are_requeued_behind_it_in_their_order() -> None:
    trigger = uuid4()
    runs = [failed_run(trigger_id=trigger, key=f"{trigger}:a") for _ in range(3)]
    Run.objects.filter(pk=runs[0].pk).update(error=f"{NO} ")  # its row is the last one of the table's file

    requeue_incident(cover(*reversed(runs)).pk, by="ada")

    in_order = list(Run.objects.order_by("seq"))
    assert [run.pk for run in in_order] == [run.pk for run in runs]
    assert [run.slot for run in in_order] == [1, None, None]


def test_a_requeue_that_takes_too_long_leaves_runs_for_another_call() -> None:
    incident = cover(failed_run())

    done = requeue_incident(incident.pk, by="ada", patience=0)

    assert (done.runs, done.left) == (0, True)


def test_a_person_closes_an_incident_and_others_are_notified() -> None:
    fail(2)
    incident = Incident.objects.get()

    close_incident(incident.pk, by="ada")

    incident.refresh_from_db()
    assert (incident.status, incident.closed_by) == ("closed", "ada")
    assert notification_texts()[1].startswith("Trigger greeter: closed by ada, after ")
    assert AuditEntry.objects.get(kind="incident").action == "close"
    with pytest.raises(IllegalState, match="is closed"):
        close_incident(incident.pk, by="ada")


# Several at the same time


def together(*acts: Any) -> list[Any]:
    """Call them at the same time, each on a connection of its own; their results."""
    barrier, results = threading.Barrier(len(acts)), []

    def run(act: Any) -> None:
        try:
            barrier.wait(60)
            results.append(act())
        except Exception as error:
            results.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[act]) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_two_who_requeue_at_once_requeue_each_run_once() -> None:
    trigger = uuid4()
    runs = [failed_run(trigger_id=trigger, key=f"{trigger}:{n % 5}" if n % 2 else None) for n in range(60)]
    incident = make_incident("greeter", *runs)

    results = together(*[lambda: requeue_incident(incident.pk, by="ada", batch=7)] * 4)

    assert sum(done.runs for done in results) == 60
    assert AuditEntry.objects.filter(kind="run", action="requeue").count() == 60
    assert set(Run.objects.values_list("epoch", flat=True)) == {1}


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_failures_successes_a_close_and_a_requeue_at_once_do_not_block_each_other() -> None:
    runs = [failed_run() for _ in range(40)]
    incident = make_incident("greeter", *runs, told="open", told_at="2026-01-01T00:00Z")

    def note_others(kind: str) -> Any:
        def act() -> None:
            for n in range(20):
                with transaction.atomic():
                    note([Failed(thing=thing(f"{kind}-{n}"), error=NO), Failed(thing=thing(f"{kind}-{n}"), error=NO)])

        return act

    def under_a_key() -> None:
        for n in range(20):
            with transaction.atomic():
                keys.lock(f"k{n}")
                note([Failed(thing=thing("keyed"), error=NO)])

    results = together(
        note_others("a"),
        note_others("b"),
        under_a_key,
        lambda: close_incident(incident.pk, by="ada"),
        lambda: requeue_incident(incident.pk, by="ada", batch=5),
    )

    assert not [result for result in results if isinstance(result, Exception)]
    assert Incident.objects.filter(closed_at=None).count() == 41
    assert Run.objects.filter(status="queued").count() == 40
