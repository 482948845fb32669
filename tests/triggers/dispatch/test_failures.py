"""Dispatch that fails is tried again, smaller or later; an event is given up only for an error of its own."""

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import DataError, OperationalError, connection
from psycopg.errors import QueryCanceled

from runs.models import Alarm, Run
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import failures
from triggers.dispatch.batch import MOST, Batch
from triggers.dispatch.failures import Careful, Work
from triggers.dispatch.rules import Rules
from triggers.matching import pending
from triggers.models import Decision, Event

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has failed is tried again at once."""
    monkeypatch.setattr(failures, "RETRY", 0.0)


def execute(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)


BREAK = {
    "a column that migrate has not made": (
        "ALTER TABLE runs_run RENAME COLUMN chain TO chains",
        "ALTER TABLE runs_run RENAME COLUMN chains TO chain",
    ),
    "a column that must be there and is not": (
        "ALTER TABLE runs_run ALTER COLUMN workspace SET NOT NULL",
        "ALTER TABLE runs_run DROP COLUMN workspace",
    ),
    "a table that cannot be written": (
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'read only' USING ERRCODE = '25006'; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON runs_run EXECUTE FUNCTION refuse()",
        "DROP TRIGGER refuse ON runs_run",
    ),
}


@pytest.mark.parametrize("fault", BREAK)
def test_a_fault_of_the_database_costs_no_event_and_ends_by_itself(fault: str) -> None:
    make_trigger()
    events = [make_event() for _ in range(20)]
    work = failures.events(Rules())
    broken, mended = BREAK[fault]
    if "workspace" in broken:
        execute("ALTER TABLE runs_run ADD COLUMN workspace text")
    execute(broken)

    for _ in range(40):
        work()

    assert not Decision.objects.exists()
    assert Event.objects.filter(dispatched_at=None).count() == 20
    assert Alarm.objects.filter(ended_at=None).values_list("name", flat=True).get() == "dispatch-refused"

    execute(mended)
    for _ in range(40):
        work()

    ran = [run.event_ids[0] for run in Run.objects.order_by("seq")]
    assert ran == [event.pk for event in events]
    assert not Decision.objects.exists()
    assert Alarm.objects.get().ended_at is not None


class Fake:
    """Numbers as units of work."""

    def __init__(self, count: int, bad: set[int] = frozenset(), most: int = MOST, own: bool = True) -> None:  # type: ignore[assignment]
        self.left, self.bad, self.most, self.own = list(range(count)), bad, most, own
        self.sizes: list[int] = []
        self.given_up: list[int] = []

    def next(self, most: int, aside: Sequence[int]) -> list[int]:
        return [one for one in self.left if one not in aside][:most]

    def run(self, units: Sequence[int], most: int) -> Batch:
        self.sizes.append(len(units))
        if len(units) > self.most:
            raise OperationalError("canceling statement due to statement timeout") from QueryCanceled()
        if self.bad & set(units):
            raise DataError("cannot be stored") from StoreError()
        self.left = [one for one in self.left if one not in units]
        return Batch(dispatched=len(units), made=len(units))

    def give_up(self, unit: int, error: Exception) -> Batch:
        self.given_up.append(unit)
        self.left.remove(unit)
        return Batch(dispatched=1)

    def careful(self) -> Careful[Any]:
        return Careful(
            Work(
                next=self.next,
                again=lambda unit: [unit],
                run=self.run,
                size=len,
                give_up=self.give_up,
                identity=lambda unit: unit,
                noun="event",
                alarm="dispatch-refused",
            )
        )


class StoreError(Exception):
    sqlstate = "22021"


def test_a_batch_too_large_for_its_time_is_halved_and_grows_again() -> None:
    fake = Fake(2000, most=100)
    work = fake.careful()
    for _ in range(100):
        work()
        if len(fake.left) < 500:
            fake.most = MOST

    assert not fake.left and not fake.given_up
    assert fake.sizes[:5] == [1000, 500, 250, 125, 62]
    assert max(fake.sizes[-5:]) > 100


def test_an_event_that_cannot_be_stored_is_given_up_and_no_other_of_a_thousand() -> None:
    fake = Fake(1000, bad={17})
    work = fake.careful()
    for _ in range(60):
        work()

    assert not fake.left and fake.given_up == [17]


def test_many_bad_ones_in_front_keep_the_good_ones_only_for_a_while() -> None:
    fake = Fake(100, bad=set(range(50)))
    work = fake.careful()
    for _ in range(600):
        work()

    # More than a few for the same error: it is not theirs, and they are kept.
    assert len(fake.given_up) == failures.GIVEN_UP_ALIKE
    assert set(fake.left) == set(range(50)) - set(fake.given_up)
    assert Alarm.objects.filter(ended_at=None).exists()


def test_no_event_is_given_up_while_every_event_fails() -> None:
    fake = Fake(5, bad=set(range(5)))
    work = fake.careful()
    for _ in range(100):
        work()

    assert len(fake.left) == 5 and not fake.given_up


def test_an_event_that_was_set_aside_is_read_in_its_place_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where reading is slow, and begins where the last read found the first event."""
    monkeypatch.setattr(pending, "first", pending.First(slow=0.0))
    aside, later = make_event(), make_event()

    assert [item.event_id for item in pending.read_items(10, [aside.pk])] == [later.pk]

    assert [item.event_id for item in pending.read_items(10)] == [aside.pk, later.pk]


def test_however_many_events_of_one_trigger_fail_those_of_another_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where more fail than may be set aside."""
    monkeypatch.setattr(failures, "MOST_ASIDE", 5)
    make_trigger("bad", types=["bad.*"])
    make_trigger("good", types=["good.*"])
    execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "IF new.trigger = 'bad' THEN RAISE 'refused' USING ERRCODE = '23514'; END IF; RETURN new; END $$;"
        "CREATE TRIGGER refuse BEFORE INSERT ON runs_run FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    work = failures.events(Rules())
    for _ in range(30):
        make_event(type="bad.came")
        make_event(type="good.came")
        for _ in range(4):
            work()
    for _ in range(100):
        work()

    assert Run.objects.filter(trigger="good").count() == 30
    assert Decision.objects.filter(outcome="error").count() > failures.GIVEN_UP_ALIKE
    assert Event.objects.filter(dispatched_at=None).count() <= 5
