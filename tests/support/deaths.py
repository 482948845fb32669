"""Attempts of a run that end at a point between its commits, as if their process had died."""

from typing import Any

import pytest

from runs.actions.approve import decide
from runs.db import trip
from runs.durable import progress, store
from runs.models import Approval, Run
from tests.support.durable import Lab

POINTS = ("after_call", "before_step_commit", "after_step_commit", "after_step_body")


class Gone(BaseException):
    """The body ends here, and nothing more is written."""


class Deaths:
    """Raises at the so-manieth visit of the point."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.point, self.visit, self.happened = "", 0, False
        monkeypatch.setattr(store, "failpoint", self.at)
        real = trip.reach

        def reach(at: str, passed: Any) -> None:
            self.at(at)
            real(at, passed)

        monkeypatch.setattr(progress, "reach", reach)

    def arm(self, point: str, visit: int) -> None:
        self.point, self.visit, self.happened = point, visit, False

    def at(self, point: str) -> None:
        if point == self.point:
            self.visit -= 1
            if self.visit == 0:
                self.happened = True
                raise Gone(point)


def ended(lab: Lab, body: Any) -> Run:
    """The run, once it has been tried again where it died, and its question is answered."""
    run = lab.run(body, policy={"retries": 9})
    for _ in range(10):
        for approval in Approval.objects.filter(wait__run=run, wait__status="open", decision=""):
            decide(approval.pk, decision="approve", by="ann")
        if run.status in ("succeeded", "failed", "uncertain"):
            return run
        run = lab.later(run)
    raise AssertionError((run.status, run.status_reason, run.error))
