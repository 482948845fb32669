import time
from threading import BoundedSemaphore

import pytest
from django.utils import timezone
from uuid_utils.compat import uuid7

from runs.actions import watch
from runs.models import Attempt, Run
from runs.states import RunStatus
from tests.support.api import Api
from tests.support.runs import make_run
from tests.support.stack import within

pytestmark = pytest.mark.django_db


def test_a_run_can_be_read_with_its_attempts() -> None:
    run = make_run(status=RunStatus.FAILED, error="boom", input={"a": 1}, attempt=1, epoch=1)
    now = timezone.now()
    Attempt.objects.create(
        run=run, epoch=1, number=1, started_at=now, ended_at=now, outcome="failed", error="boom", traceback="line 1"
    )

    body = Api().get(f"runs/{run.id}/").body

    assert (body["id"], body["status"], body["trigger"], body["error"]) == (str(run.id), "failed", "greeter", "boom")
    assert body["event_ids"] == [str(run.event_ids[0])]
    assert body["input"] == {"a": 1}
    assert [(one["outcome"], one["traceback"]) for one in body["attempts"]] == [("failed", "line 1")]


def test_runs_are_found_by_event_trigger_and_status() -> None:
    event_id = uuid7()
    wanted = make_run(event_id=event_id, status=RunStatus.FAILED)
    make_run(event_id=event_id, trigger="other")
    make_run(status=RunStatus.FAILED, trigger="other")
    api = Api()

    def found(**query: object) -> set[str]:
        return {run["id"] for run in api.get("runs/", **query).body["results"]}

    assert len(found()) == 3
    assert len(found(event=event_id)) == 2
    assert len(found(status="failed")) == 2
    assert found(trigger="greeter") == {str(wanted.id)}
    assert found(event=event_id, trigger="greeter", status="failed") == {str(wanted.id)}
    assert found(event=event_id, status="running") == set()


@pytest.mark.parametrize(
    ("field", "value"), [("event", "42"), ("status", "done"), ("trigger", "a b"), ("trigger", "\0")]
)
def test_a_filter_that_makes_no_sense_is_400_naming_the_field(field: str, value: str) -> None:
    answer = Api().get("runs/", **{field: value})

    assert (answer.status, list(answer.body)) == (400, [field])


def test_the_next_page_keeps_the_filters() -> None:
    for trigger in ("greeter", "other") * 3:
        make_run(trigger=trigger)
    api = Api()

    first = api.get("runs/", trigger="greeter", limit=2).body
    second = api.client.get(first["next"]).json()

    assert [run["trigger"] for run in first["results"] + second["results"]] == ["greeter"] * 3
    assert second["next"] is None


def test_requeue_brings_a_failed_run_back() -> None:
    run = make_run(status=RunStatus.FAILED, error="boom")

    answer = Api(["runs.requeue_run"]).post(f"runs/{run.id}/requeue/")

    assert (answer.status, answer.body["id"], answer.body["status"]) == (200, str(run.id), "queued")
    assert answer.body["status_reason"] == "requeued by token:ci"


@pytest.mark.parametrize(
    ("status", "action"),
    [(RunStatus.QUEUED, "requeue"), (RunStatus.SUCCEEDED, "requeue"), (RunStatus.SUCCEEDED, "cancel")],
)
def test_an_action_its_state_forbids_is_409_with_that_state(status: RunStatus, action: str) -> None:
    run = make_run(status=status)

    answer = Api().post(f"runs/{run.id}/{action}/")

    assert (answer.status, answer.body["status"], set(answer.body)) == (409, status, {"detail", "status"})


@pytest.mark.parametrize("path", ["runs/{}/", "runs/{}/?wait=30", "runs/no-uuid/"])
def test_an_unknown_run_is_404(path: str) -> None:
    assert Api().get(path.format(uuid7())).status == 404


# --- Waiting ---


@pytest.mark.sampled
def test_a_finished_run_is_answered_at_once() -> None:
    run = make_run(status=RunStatus.SUCCEEDED)

    with within(2):
        answer = Api().get(f"runs/{run.id}/", wait=30)

    assert answer.body["status"] == "succeeded"


def test_a_run_that_does_not_finish_is_answered_when_the_time_is_up() -> None:
    run = make_run()
    started = time.monotonic()

    answer = Api().get(f"runs/{run.id}/", wait="0.3")

    assert (answer.status, answer.body["status"]) == (200, "queued")
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("wait", ["soon", "-1", "NaN", "inf"])
def test_a_wait_that_makes_no_sense_is_400_naming_the_field(wait: str) -> None:
    answer = Api().get(f"runs/{make_run().id}/", wait=wait)

    assert (answer.status, list(answer.body)) == (400, ["wait"])


@pytest.mark.sampled
def test_a_request_does_not_wait_if_too_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "WATCHERS", BoundedSemaphore(1))
    watch.WATCHERS.acquire()

    with within(2):
        answer = Api().get(f"runs/{make_run().id}/", wait=30)

    assert (answer.status, answer.body["status"]) == (200, "queued")


def test_a_waiting_request_is_answered_at_the_first_look_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    pauses: list[float] = []

    def finish_during_the_third(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 3:
            ended = {"status": RunStatus.CANCELLED, "ready_at": None, "finished_at": timezone.now()}
            Run.objects.filter(pk=run.pk).update(**ended)

    monkeypatch.setattr(watch, "sleep", finish_during_the_third)

    answer = Api().get(f"runs/{run.id}/", wait=30)

    assert answer.body["status"] == "cancelled"
    assert len(pauses) == 3 and sum(pauses) < 0.25


def test_a_run_that_is_gone_by_then_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    monkeypatch.setattr("runs.actions.cancel.stop", lambda run, by: not Run.objects.filter(pk=run.pk).delete())

    assert Api().post(f"runs/{run.id}/cancel/").status == 404
