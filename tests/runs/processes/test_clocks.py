"""A host whose clock is wrong is a problem that names the host."""

import time
from collections.abc import Iterator

import pytest

from config.health.problems import problems
from config.health.situation import read_situation
from runs.models import Worker
from runs.processes.lease import Clock, Presence, open_row, renew

pytestmark = pytest.mark.django_db


@pytest.fixture
def presence() -> Iterator[Presence]:
    yield Presence(Worker.Kind.WEB)


def named() -> list[str]:
    return [f"{one.name} {one.text}" for one in problems(read_situation()) if one.name.startswith("clock:")]


@pytest.mark.parametrize(("off", "message"), [(-360, "6 min behind"), (360, "6 min ahead of")])
def test_a_clock_that_is_minutes_off_is_a_problem_that_names_its_host(
    presence: Presence, monkeypatch: pytest.MonkeyPatch, off: int, message: str
) -> None:
    now = time.time
    with monkeypatch.context() as wrong:
        wrong.setattr("runs.processes.lease.time.time", lambda: now() + off)
        presence.renew()
        presence.renew()

        [problem] = named()
        assert Worker.objects.get().host in problem
        assert message in problem

    presence.renewed_at = float("-inf")
    presence.renew()
    presence.renew()
    assert named() == []


@pytest.mark.parametrize(("off", "message"), [(-300, "5 min behind"), (300, "5 min ahead of")])
def test_the_clock_of_a_workers_host_is_compared_when_it_renews_its_lease(
    monkeypatch: pytest.MonkeyPatch, off: int, message: str
) -> None:
    now, clock, row = time.time, Clock(), open_row(Worker.Kind.WORKER)
    with monkeypatch.context() as wrong:
        wrong.setattr("runs.processes.lease.time.time", lambda: now() + off)
        assert renew(row, clock)
        assert renew(row, clock)

        [problem] = named()
        assert Worker.objects.get().host in problem
        assert message in problem
        assert "its agents the wrong time" in problem

    renew(row, clock)
    renew(row, clock)
    assert named() == []


def test_a_database_that_answers_late_is_no_wrong_clock() -> None:
    clock = Clock()

    clock.compare(before=100.0, database=100.5, after=130.0)
    assert not clock.is_wrong

    clock.compare(before=100.0, database=129.5, after=130.0)
    assert not clock.is_wrong
