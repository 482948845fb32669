"""Each run that fails for good is one record of level ERROR, whichever process ends it."""

import logging
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.db.backends.base.base import BaseDatabaseWrapper

from agents import AgentRun, Permanent, Retry
from runs import executor
from runs.models import Run
from runs.processes.rescue import lost
from tests.support.durable import Lab, lab  # noqa: F401  (a fixture)
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules

pytestmark = pytest.mark.django_db(transaction=True)


def queued(**policy: object) -> None:
    make_trigger(policy=policy)
    make_event()
    assert dispatch(Rules()).dispatched


def errors(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("durable", [False, True])
def test_a_permanent_error_is_one_record_with_its_exception(
    lab: Lab,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    durable: bool,
) -> None:
    def body(run: AgentRun) -> None:
        raise Permanent("no such order")

    lab.declare(body, "greeter", durable=durable)
    queued()

    assert lab.claim_and_execute()

    [record] = errors(caplog)
    run = Run.objects.get()
    assert record.getMessage() == f"Run {run.id} of greeter failed: permanent error. Permanent: no such order"
    assert record.exc_info and isinstance(record.exc_info[1], Permanent)
    named = (record.run, record.agent, record.trigger)  # type: ignore[attr-defined]
    assert named == (str(run.id), "greeter", "greeter")


def test_an_attempt_that_is_followed_by_another_is_no_error(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    def body(run: AgentRun) -> None:
        raise Retry("later")

    lab.declare(body, "greeter", durable=False)
    queued(retries=1)

    assert lab.claim_and_execute()

    assert Run.objects.get().status == "queued"
    assert not errors(caplog)


def test_a_failure_whose_commit_is_not_answered_is_one_record(
    lab: Lab,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The hooks of a commit are not called when its answer is lost, and the second try finds the run ended."""

    def body(run: AgentRun) -> None:
        raise Permanent("no such order")

    wrapper: Any = BaseDatabaseWrapper
    commit, cuts = wrapper._commit, iter([True])

    def commit_unanswered(session: Any) -> None:
        commit(session)
        monkeypatch.setattr(BaseDatabaseWrapper, "_commit", commit)
        raise OperationalError("server closed the connection unexpectedly")

    def failpoint(name: str) -> None:
        if name == "before_record_commit" and next(cuts, False):
            monkeypatch.setattr(BaseDatabaseWrapper, "_commit", commit_unanswered)

    monkeypatch.setattr(executor, "failpoint", failpoint)
    lab.declare(body, "greeter", durable=False)
    queued()

    assert lab.claim_and_execute()

    assert Run.objects.get().status == "failed"
    [record] = errors(caplog)
    assert record.exc_info and isinstance(record.exc_info[1], Permanent)


def test_a_run_that_is_lost_for_the_last_time_is_one_record(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    lab.declare(lambda run: None, "greeter", durable=False)
    queued(retries=0)
    assert lab.claim()
    with connection.cursor() as cursor:
        cursor.execute("RESET application_name")  # a rescuer ends the session of the claim

    assert lost(Run.objects.get(), "its worker was lost")

    [record] = errors(caplog)
    assert "attempts used up (1)" in record.getMessage() and not record.exc_info
