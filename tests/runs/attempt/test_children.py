"""Children: made once and within limits, woken for, and stopped with their parent."""

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.utils import timezone

from agents import Agent, Permanent, registry
from agents.kernel.effects import Child
from agents.kernel.ids import child_id
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.attempt.children import TOGETHER, children_finished, enqueue_children, stop_orphans
from runs.claim import Claim, claim_next
from runs.models import OutboxMessage, Run, Step, Wait, Worker
from runs.outbox import deliver_inside
from runs.states import RunStatus
from runs.transitions.leave import leave
from runs.transitions.outcome import Outcome
from runs.waits import look_back
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def agents(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("parent", "picker"):
        monkeypatch.setitem(
            registry._agents, name, Agent(name=name, body=lambda run: None, queue="default", priority=2)
        )
    yield


@pytest.fixture
def claim() -> Callable[[str], Claim]:
    def claim(agent: str) -> Claim:
        worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
        claimed = claim_next(worker.id, "default", {agent: "1"})
        assert claimed is not None
        with connection.cursor() as cursor:  # all play on one session here
            cursor.execute("SET application_name = 'test'")
        return claimed

    return claim


@pytest.fixture
def parent(claim: Callable[[str], Claim]) -> Claim:
    """A running parent, itself the first link of a chain."""
    make_run(trigger="orders", agent="parent", depth=1, chain=["shop"])
    return claim("parent")


def children(parent: Claim, count: int, *, agent: str = "picker", at_once: int = 0, first: int = 0) -> list[Child]:
    return [
        Child(id=child_id(parent.run_id, str(n)), agent=agent, input={"n": n}, key=str(n), at_once=at_once)
        for n in range(first, first + count)
    ]


def spawned(parent: Claim) -> list[Run]:
    return list(Run.objects.filter(parent_id=parent.run_id).order_by("seq"))


def wait_for(run_id: UUID, *ids: UUID, key: str = "join#1") -> Wait:
    """What a run leaves behind that waits for children."""
    Run.objects.filter(pk=run_id).update(status="waiting", worker=None, pid=None, slot=None)
    return Wait.objects.create(run_id=run_id, key=key, position=1, kind="children", children=list(ids))


@transaction.atomic
def end(claimed: Claim, status: RunStatus = RunStatus.SUCCEEDED) -> None:
    leave(claimed.ticket, Outcome(status=status))


def tell() -> None:
    """Deliver all messages to the dispatcher."""
    OutboxMessage.objects.update(available_at=timezone.now())
    while deliver_inside(500):
        OutboxMessage.objects.update(available_at=timezone.now())


def status_of(run_id: UUID) -> str:
    return str(Run.objects.get(pk=run_id).status)


# Making them


def test_a_child_is_a_ready_run_of_the_same_chain(parent: Claim) -> None:
    enqueue_children(parent, children(parent, 1))

    [run] = spawned(parent)
    assert (run.agent, run.trigger, run.event_ids, run.input) == ("picker", "", [], {"n": 0})
    assert (run.root_id, run.depth, run.chain) == (parent.root_id, 2, ["shop", "orders"])
    assert (run.status, run.priority, run.key) == ("queued", 2, None)
    assert run.ready_at is not None


def test_spawning_again_makes_no_second_child(parent: Claim) -> None:
    enqueue_children(parent, children(parent, 3, at_once=1))
    enqueue_children(parent, children(parent, 4, at_once=1))

    runs = spawned(parent)
    assert [run.input for run in runs] == [{"n": n} for n in range(4)]
    assert [run.slot for run in runs] == [1, None, None, None]


def test_no_more_children_run_at_once_than_the_parent_wants(parent: Claim, claim: Callable[[str], Claim]) -> None:
    enqueue_children(parent, children(parent, 5, at_once=2))
    assert [run.slot for run in spawned(parent)] == [1, 2, None, None, None]

    end(claim("picker"))

    assert [run.ready_at is not None for run in spawned(parent)] == [False, True, True, False, False]


def test_an_agent_that_is_not_there_is_named_with_those_that_are(parent: Claim) -> None:
    with pytest.raises(Permanent, match=r"no agent 'packer' to spawn; the agents are: .*picker"):
        enqueue_children(parent, children(parent, 1, agent="packer"))


def test_a_chain_is_no_deeper_with_children_than_with_events(parent: Claim, settings: Any) -> None:
    settings.WAKEFUL_MAX_DEPTH = 1

    with pytest.raises(Permanent, match="WAKEFUL_MAX_DEPTH is 1"):
        enqueue_children(parent, children(parent, 1))


def test_a_run_has_so_many_children_over_all_its_commits(parent: Claim, settings: Any) -> None:
    settings.WAKEFUL_MAX_CHILDREN = 3
    enqueue_children(parent, children(parent, 2))
    enqueue_children(parent, children(parent, 3))

    with pytest.raises(Permanent, match="WAKEFUL_MAX_CHILDREN"):
        enqueue_children(parent, children(parent, 1, first=3))


def test_an_input_that_is_no_json_is_refused(parent: Claim) -> None:
    child = Child(id=uuid4(), agent="picker", input=object(), key="1")

    with pytest.raises(Permanent, match="'picker', is not JSON"):
        enqueue_children(parent, [child])


# Waiting for them


def test_a_parent_wakes_once_its_last_child_has_ended(parent: Claim, claim: Callable[[str], Claim]) -> None:
    enqueue_children(parent, children(parent, 2))
    wait = wait_for(parent.run_id, *(run.id for run in spawned(parent)))

    end(claim("picker"))
    tell()
    assert status_of(parent.run_id) == "waiting"

    end(claim("picker"), RunStatus.FAILED)
    tell()
    wait.refresh_from_db()
    assert (status_of(parent.run_id), wait.status) == ("queued", "done")


def test_children_without_a_waiting_parent_block_no_wait(parent: Claim, claim: Callable[[str], Claim]) -> None:
    enqueue_children(parent, children(parent, 2))
    first, _ = spawned(parent)
    wait_for(parent.run_id, first.id)

    end(claim("picker"))
    tell()

    assert status_of(parent.run_id) == "queued"


def test_children_that_ended_before_the_wait_are_found_by_the_look_back(
    parent: Claim, claim: Callable[[str], Claim]
) -> None:
    enqueue_children(parent, children(parent, 1))
    end(claim("picker"))
    tell()
    wait_for(parent.run_id, spawned(parent)[0].id)

    assert look_back(parent.run_id) == 1
    assert status_of(parent.run_id) == "queued"


def test_hearing_of_an_end_twice_wakes_once(parent: Claim, claim: Callable[[str], Claim]) -> None:
    enqueue_children(parent, children(parent, 1))
    wait_for(parent.run_id, spawned(parent)[0].id)
    end(claim("picker"))
    payload = OutboxMessage.objects.get(topic="child.finished").payload
    children_finished([payload])
    Run.objects.filter(pk=parent.run_id).update(status="running", ready_at=None, **owned())

    children_finished([payload])

    assert status_of(parent.run_id) == "running"


def owned() -> dict[str, Any]:
    worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
    return {"worker": worker, "pid": 7, "claimed_at": timezone.now(), "deadline_at": timezone.now()}


def test_a_fork_waits_for_the_children_of_the_run_it_came_from(parent: Claim, claim: Callable[[str], Claim]) -> None:
    enqueue_children(parent, children(parent, 1))
    end(parent, RunStatus.FAILED)
    fork = make_run(status="waiting", agent="parent", forked_from_id=parent.run_id)
    wait_for(fork.id, spawned(parent)[0].id)
    tell()
    assert not look_back(fork.id)

    end(claim("picker"))
    tell()

    assert status_of(fork.id) == "queued"


# Stopping them


def test_the_children_of_a_cancelled_run_are_cancelled_and_theirs(parent: Claim, claim: Callable[[str], Claim]) -> None:
    enqueue_children(parent, children(parent, 1))
    child = claim("picker")
    enqueue_children(child, children(child, 1))
    wait_for(child.run_id, spawned(child)[0].id)
    wait_for(parent.run_id, child.run_id)

    cancel(parent.run_id, by="ada")
    tell()

    assert [status_of(run.id) for run in (*spawned(parent), *spawned(child))] == ["cancelled", "cancelled"]
    assert Wait.objects.filter(status="closed").count() == 2


def test_a_running_child_gets_a_cancel_request_and_blocked_children_are_cancelled(
    parent: Claim, claim: Callable[[str], Claim]
) -> None:
    enqueue_children(parent, children(parent, 3, at_once=1))
    claim("picker")
    wait_for(parent.run_id, *(run.id for run in spawned(parent)))

    cancel(parent.run_id, by="ada")
    tell()

    first, *others = spawned(parent)
    assert first.status == "running"
    assert first.cancel_requested_at is not None
    assert [run.status for run in others] == ["cancelled", "cancelled"]


def test_very_many_children_are_stopped_in_portions(parent: Claim) -> None:
    enqueue_children(parent, children(parent, TOGETHER + 1))
    end(parent, RunStatus.CANCELLED)
    payload = OutboxMessage.objects.get(topic="run.finished").payload

    stop_orphans([payload])
    assert Run.objects.filter(parent_id=parent.run_id, status="cancelled").count() == TOGETHER

    tell()
    assert Run.objects.filter(parent_id=parent.run_id, status="cancelled").count() == TOGETHER + 1


def test_a_run_that_goes_on_before_its_end_was_known_keeps_its_children(parent: Claim) -> None:
    enqueue_children(parent, children(parent, 1))
    end(parent, RunStatus.CANCELLED)
    requeue(parent.run_id, by="ada")

    tell()

    assert spawned(parent)[0].status == "queued"


def test_a_failed_run_keeps_its_children_for_a_requeue(parent: Claim) -> None:
    enqueue_children(parent, children(parent, 1))
    end(parent, RunStatus.FAILED)

    tell()

    assert spawned(parent)[0].status == "queued"


def test_a_fork_that_knows_of_a_child_keeps_it_until_it_is_cancelled_itself(parent: Claim) -> None:
    enqueue_children(parent, children(parent, 2))
    kept, lost = spawned(parent)
    end(parent, RunStatus.CANCELLED)
    fork = make_run(agent="parent", forked_from_id=parent.run_id)
    Step.objects.create(
        run=fork, key="spawn picker#1", position=1, effect="transactional", status="done", epoch=1, output=str(kept.id),
        ended_at=timezone.now(),
    )  # fmt: skip
    tell()
    assert [status_of(kept.id), status_of(lost.id)] == ["queued", "cancelled"]

    cancel(fork.id, by="ada")
    tell()
    assert status_of(kept.id) == "cancelled"


def test_a_cancelled_run_without_children_costs_one_look(django_assert_num_queries: Any) -> None:
    payload = {"run": str(uuid4()), "trigger": None, "status": "cancelled", "error": ""}

    with django_assert_num_queries(1):
        stop_orphans([payload, {**payload, "run": str(uuid4())}])
    with django_assert_num_queries(0):
        stop_orphans([{**payload, "status": "succeeded"}])
