"""Whatever concurrent claims reserve, spend, give back and lose, the windows agree with a model of them, and no more is ever
set aside than the cap allows."""

from collections.abc import Iterator
from decimal import Decimal
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.journal.budget import NOTHING, Cost, Reserved, Used
from runs.budgets import wake
from runs.budgets.caps import create_budget, set_cap
from runs.budgets.reserve import Reservations
from runs.claim import Claim
from runs.db.session import writing
from runs.models import Budget, BudgetWindow, Reservation, Run, Worker
from runs.models.policy import Policy
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db(transaction=True)

AMOUNTS = st.integers(1, 60)
RUNS = st.integers(0, 2)
KEYS = st.sampled_from("ab")
MOVES = st.one_of(
    st.tuples(st.just("reserve"), RUNS, KEYS, AMOUNTS),
    st.tuples(st.just("spend"), RUNS, KEYS, AMOUNTS),
    st.tuples(st.just("unmeasured"), RUNS, KEYS, st.just(0)),
    st.tuples(st.just("rolled back"), RUNS, KEYS, AMOUNTS),
    st.tuples(st.just("give back"), RUNS, KEYS, st.just(0)),
    st.tuples(st.just("crash"), RUNS, st.just(""), st.just(0)),
    st.tuples(st.just("look"), st.just(0), st.just(""), st.just(0)),
    st.tuples(st.just("cap"), st.just(0), st.just(""), st.integers(0, 200)),
)


class Model:
    """What the windows of a cap for all runs in a day, and of another for each run, should say."""

    def __init__(self, cap: int, of_run: int) -> None:
        self.cap, self.of_run = cap, of_run
        self.held: dict[tuple[int, str], int] = {}  # by the claim that lives
        self.lost: list[tuple[int, int]] = []  # by claims that are over, not settled yet: a run, an amount
        self.spent: dict[int, int] = dict.fromkeys(range(3), 0)

    def reserved(self, run: int | None = None) -> int:
        held = [(of, amount) for (of, _), amount in self.held.items()]
        return sum(amount for of, amount in [*held, *self.lost] if run in (None, of))

    def spend_lost(self) -> None:
        for of, amount in self.lost:
            self.spent[of] += amount
        self.lost = []

    def reserve(self, run: int, key: str, amount: int) -> bool:
        has_room = sum(self.spent.values()) + self.reserved() + amount <= self.cap
        if has_room and self.spent[run] + self.reserved(run) + amount <= self.of_run:
            self.held[run, key] = amount
            return True
        return False

    def settle(self, run: int, key: str, amount: int | None) -> None:
        if (run, key) in self.held:
            held = self.held.pop((run, key))
            self.spent[run] += held if amount is None else amount

    def crash(self, run: int) -> None:
        for place in [place for place in self.held if place[0] == run]:
            self.lost.append((run, self.held.pop(place)))


class Lives:
    """Runs that are claimed, and claimed again."""

    def __init__(self) -> None:
        self.worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=3)
        self.runs = [make_run() for _ in range(3)]
        self.claims = [self.claim(number) for number in range(3)]
        self.held: dict[tuple[int, str], Reserved] = {}

    def claim(self, number: int) -> Reservations:
        run, identity = self.runs[number], uuid4()
        Run.objects.filter(pk=run.pk).update(
            status="running", worker=self.worker, pid=number + 1, claimed_at=timezone.now(),
            deadline_at=timezone.now(), ready_at=None, claim=identity,
        )  # fmt: skip
        return Reservations(claim_of(run, identity))


def claim_of(run: Run, identity: UUID) -> Claim:
    return Claim(
        run_id=run.pk, epoch=0, id=identity, attempt=1, agent=run.agent, trigger=run.trigger, trigger_id=run.trigger_id,
        event_ids=(), input=None, policy=Policy(), root_id=run.root_id, depth=0, key=None, slot=None,
    )  # fmt: skip


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    Budget.objects.all().delete()


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cap=st.integers(0, 150), of_run=st.integers(20, 100), moves=st.lists(MOVES, max_size=25))
def test_budget_windows_agree_with_a_reference_model(
    cap: int, of_run: int, moves: list[tuple[str, int, str, int]]
) -> None:
    Budget.objects.all().delete()
    Run.objects.all().delete()
    budgets = [make_budget("day", cap), make_budget("run", of_run)]
    lives, model = Lives(), Model(cap, of_run)

    for move in moves:
        make(move, lives, model, budgets[0])

        by_run = {run.pk: number for number, run in enumerate(lives.runs)}
        for window in BudgetWindow.objects.select_related("budget"):
            number = None if window.budget.period == "day" else by_run[window.run_id]
            spent = sum(model.spent.values()) if number is None else model.spent[number]
            assert (window.spent, window.reserved) == (Decimal(spent), Decimal(model.reserved(number))), move
        assert Reservation.objects.count() == 2 * (len(model.held) + len(model.lost))


def make_budget(period: str, cap: int) -> Budget:
    return create_budget(scope="installation", period=period, measure="usd", cap=Decimal(cap), by="test")


def make(move: tuple[str, int, str, int], lives: Lives, model: Model, day: Budget) -> None:
    kind, run, key, amount = move
    claim = lives.claims[run]
    held = lives.held.get((run, key))
    match kind:
        case "reserve" if held is None:
            reserved = claim.reserve(key, Cost(usd=Decimal(amount), requests=1))
            assert isinstance(reserved, Reserved) == model.reserve(run, key, amount)
            if isinstance(reserved, Reserved):
                lives.held[run, key] = reserved
        case "spend" | "unmeasured" | "give back" if held:
            used: dict[str, Used] = {"spend": {"usd": str(amount)}, "unmeasured": {"usd": None}, "give back": NOTHING}
            claim.settle(held, used[kind])
            claim.settle(held, used[kind])  # the second time does nothing
            del lives.held[run, key]
            model.settle(run, key, {"spend": amount, "unmeasured": None, "give back": 0}[kind])
        case "rolled back" if held:
            with writing():
                claim.settle(held, NOTHING)
                transaction.set_rollback(True)
        case "crash":
            lives.claims[run] = lives.claim(run)
            lives.held = {place: one for place, one in lives.held.items() if place[0] != run}
            model.crash(run)
        case "look":
            wake.settle_lost()
            model.spend_lost()
        case "cap":
            set_cap(day.pk, Decimal(amount), by="test")
            model.cap = amount


def test_a_claim_that_has_lost_its_run_reserves_nothing() -> None:
    from runs.exceptions import RunLost

    make_budget("day", 10)
    lives = Lives()
    old = lives.claims[0]
    lives.claim(0)

    with pytest.raises(RunLost):
        old.reserve("a", Cost(usd=Decimal(1), requests=1))

    assert not Reservation.objects.exists()
