"""The tool failed_runs, and the grouping by cause behind it."""

from datetime import timedelta

import pytest

from agents.exceptions import Permanent
from config.facts import failed_runs
from tests.support.durable import Lab, lab
from tests.support.tools import call

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)


def fail(lab: Lab, why: str) -> None:
    def body(run: object) -> None:
        raise Permanent(why)

    assert lab.run(body).status == "failed"


def test_failed_runs_are_shown_by_cause_as_data_of_strangers(lab: Lab) -> None:
    for number in (1, 2):
        fail(lab, f"order 'A-{number}' is not known")
    fail(lab, "no answer")

    [often, once] = failed_runs(timedelta(hours=1))
    assert (often.count, once.count) == (2, 1)
    assert (often.cause, often.error) == ("Permanent: order '…' is not known", "Permanent: order 'A-2' is not known")
    assert len(often.runs) == 2

    called = call("failed_runs", {"hours": 1})
    assert "order 'A-2' is not known" in called.results[0]
    assert called.results[0].startswith("<untrusted-data")
    assert called.done.is_tainted


def test_runs_that_failed_before_are_left_out(lab: Lab) -> None:
    fail(lab, "no answer")

    assert failed_runs(timedelta(0)) == []
