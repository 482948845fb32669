"""A caller that has vanished is a problem that pages and alarms name."""

import pytest
from django.db.models import F
from pytest_django import Settings

from config.health.problems import problems
from config.health.situation import read_situation
from runs.models import Worker
from runs.processes.lease import close_row, open_row
from runs.sign import Problem

pytestmark = pytest.mark.django_db


def found() -> list[Problem]:
    return [problem for problem in problems(read_situation()) if problem.name == "no-caller"]


def test_a_caller_that_has_vanished_is_a_problem_until_another_lives(settings: Settings) -> None:
    row = open_row(Worker.Kind.CALLER)
    assert not found()

    Worker.objects.filter(id=row).update(seen_at=F("seen_at") - 10 * settings.WAKEFUL_ALARM_AFTER)
    [problem] = found()
    assert problem.is_alarm and "in their workers" in problem.text and "manage.py caller" in problem.remedy
    close_row(row, "unseen")
    assert found()

    open_row(Worker.Kind.CALLER)
    assert not found()


def test_an_installation_that_has_none_on_purpose_has_no_problem(settings: Settings) -> None:
    assert not found()
    row = open_row(Worker.Kind.CALLER)
    Worker.objects.filter(id=row).update(seen_at=F("seen_at") - 10 * settings.WAKEFUL_ALARM_AFTER)
    close_row(row, "stopped")
    assert not found()
