"""Each run that fails for good is one record of level ERROR, whichever process ends it."""

import logging

import pytest
from django.db import connection

from agents import AgentRun, Permanent, Retry
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
    assert (record.run, record.agent) == (str(run.id), "greeter")  # type: ignore[attr-defined]


def test_an_attempt_that_is_followed_by_another_is_no_error(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    def body(run: AgentRun) -> None:
        raise Retry("later")

    lab.declare(body, "greeter", durable=False)
    queued(retries=1)

    assert lab.claim_and_execute()

    assert Run.objects.get().status == "queued"
    assert not errors(caplog)


def test_a_run_that_is_lost_for_the_last_time_is_one_record(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    lab.declare(lambda run: None, "greeter", durable=False)
    queued(retries=0)
    assert lab.claim()
    with connection.cursor() as cursor:
        cursor.execute("RESET application_name")  # a rescuer ends the session of the claim

    assert lost(Run.objects.get(), "its worker was lost")

    [record] = errors(caplog)
    assert "attempts used up (1)" in record.getMessage() and not record.exc_info
