"""A claim need not wait for the disk, except where a crash of the server might be its run's doing."""

import pytest
from django.db import connection, transaction

from runs import claim as claiming
from runs.claim import claim_next
from runs.db.session import seconds_connected
from runs.db.sql import fetch
from runs.models import Run, Worker
from tests.support.runs import AGENTS, make_run

pytestmark = pytest.mark.django_db(transaction=True)


def waits_for_the_disk(worker: Worker) -> bool:
    with transaction.atomic():
        assert claim_next(worker.id, "default", AGENTS)
        [(within,)] = fetch("SHOW synchronous_commit")
    assert fetch("SHOW synchronous_commit") == [("on",)]
    return bool(within == "on")


@pytest.fixture
def old_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "LAZY_AFTER", -1.0)


@pytest.mark.usefixtures("old_session")
def test_the_first_claim_of_a_run_does_not_wait(worker: Worker) -> None:
    make_run()
    assert not waits_for_the_disk(worker)


@pytest.mark.usefixtures("old_session")
def test_a_claim_of_a_run_that_was_tried_before_waits(worker: Worker) -> None:
    """Otherwise the attempts of a run that crashes the server might never come to an end."""
    Run.objects.filter(pk=make_run().pk).update(attempt=1)
    assert waits_for_the_disk(worker)


def test_a_claim_in_a_young_session_waits(worker: Worker) -> None:
    """The crash may have lost the first claim of the run that caused it, and has ended all sessions."""
    make_run()
    connection.close()
    assert seconds_connected() == 0
    assert waits_for_the_disk(worker)
    assert 0 < seconds_connected() < claiming.LAZY_AFTER
