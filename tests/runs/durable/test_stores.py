"""One engine, three stores: in the database, in memory (`agents.testing`) and in a shadow run a body comes to the same."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from agents import Agent, AgentRun, AsyncAgentRun, Permanent, Retry
from agents.exceptions import describe
from agents.journal.entries import RecordedStep
from agents.models import AgentState
from agents.testing import Journal, Parked, Unanswered, run_agent
from runs.actions.approve import decide
from runs.models import Approval, Run, Step, Wait
from runs.shadow.shadow import Outcome
from tests.runs.durable.test_composition import hear
from tests.support.durable import Lab, lab
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.shadow import shadow_event
from triggers.models import Event, Trigger

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)
Body = Callable[[Any], Any]


@dataclass(frozen=True, kw_only=True)
class Came:
    """The outcome of a body, and its journal after it."""

    end: str  # succeeded, failed, waiting or uncertain
    detail: Any  # its result, its error, what it waits for, or why it is parked
    entries: list[tuple[Any, ...]]
    emitted: list[tuple[str, Any, str]] = field(default_factory=list)


class Speechless(Exception):
    def __str__(self) -> str:
        raise TypeError("no text")


def greet(name: str) -> str:
    return Group.objects.create(name=name).name


def fail(error: Exception) -> Any:
    raise error


def caught(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:
        return describe(error)


# Bodies that come to their end by themselves, or fail, or are parked


def every_effect(run: AgentRun) -> Any:
    number = run.random()
    outputs: list[Any] = [run.step("transactional", greet, "a")]
    outputs += [run.step("call", lambda: {"pair": (1, 2), 3: None}, key=effect, effect=effect) for effect in CALLS]
    run.emit("greeted", {"names": outputs[:1]}, subject="s")
    run.notify("done")
    run.state.set("seen", run.state.get("seen", 0) + 1)
    return [outputs, run.now() is not None, 0 <= number < 1]


CALLS: Any = ("read", "idempotent", "at_most_once")


def steps_that_fail(run: AgentRun) -> Any:
    errors = [
        ValueError("no \x00 such \ud800 thing"),
        Speechless(),
        Permanent("never"),
        KeyError("k"),
        ValueError("x" * 11_000),
    ]
    effects: Any = ("transactional", "read")
    values = [
        caught(partial(run.step, "fail", fail, error, key=f"{number} {effect}", effect=effect))
        for number, error in enumerate(errors)
        for effect in effects
    ]
    values.append(caught(lambda: run.step("refused", fail, Permanent("no"), effect="at_most_once")))
    return [text[:200] for text in values] + [len(text) for text in values]


def what_cannot_be_stored(run: AgentRun) -> Any:
    return [
        caught(lambda: run.step("set", lambda: {1})),
        caught(lambda: run.step("nul", lambda: "\x00", effect="read")),
        caught(lambda: run.step("large", lambda: "ä" * 2**20, effect="at_most_once")),
        caught(lambda: run.emit("a.b", {"when": object()})),
        caught(lambda: run.emit("a.b", "\x00")),
        caught(lambda: run.notify("\x00")),
        caught(lambda: run.step("leave", lambda: run.emit("a.b", {1}))),
        caught(lambda: run.step("leave", lambda: run.emit("a.b", {1}), key="call", effect="read")),
    ]


def places(run: AgentRun) -> Any:
    def inside_a_transaction(act: Callable[[], Any]) -> Any:
        with transaction.atomic():
            return act()

    run.step("one", lambda: None)
    return [
        caught(lambda: run.step("one", lambda: None)),
        caught(lambda: run.step("outer", lambda: run.step("inner", lambda: None))),
        caught(lambda: run.step("waits", lambda: run.sleep(1))),
        caught(lambda: inside_a_transaction(lambda: run.step("in a transaction", lambda: None))),
        caught(lambda: inside_a_transaction(lambda: run.sleep(1))),
        caught(lambda: run.step("x" * 300, lambda: None)),
        caught(lambda: run.step("odd", lambda: None, effect="odd")),  # type: ignore[arg-type]
        caught(lambda: run.idempotency_key),
    ]


async def beside_each_other(run: AsyncAgentRun) -> Any:
    async def fetch(number: int) -> int:
        await asyncio.sleep(0)
        if number == 3:
            raise ValueError("three")
        return number * 2

    found = await asyncio.gather(
        *(run.step("fetch", fetch, number, key=number, effect="read") for number in (1, 2, 3)), return_exceptions=True
    )
    await run.step("write", greet, "async")
    return [each if isinstance(each, int) else describe(each) for each in found]


def parked(run: AgentRun) -> None:
    run.step("before", greet, "a")
    run.uuid()
    with_catch = caught(lambda: run.step("pay", fail, OSError("cut"), effect="at_most_once"))
    run.step("after", greet, str(with_catch))


def swallows(run: AgentRun) -> str:
    try:
        run.step("pay", fail, OSError("cut"), effect="at_most_once")
    except BaseException:
        return "as if nothing were"
    return "?"


def says_that_it_did_not_happen(run: AgentRun) -> None:
    run.step("pay", fail, Retry("busy"), effect="at_most_once")


def too_large(run: AgentRun) -> None:
    run.step("large", lambda: "x" * (2**20 + 1))


def too_many(run: AgentRun) -> None:
    for number in range(30):
        run.step("one", lambda: None, key=number)


def writes(run: AgentRun) -> None:
    Group.objects.create(name="outside")


def no_json(run: AgentRun) -> Any:
    run.step("one", lambda: None)
    return {1}


ENDS: list[Body] = [
    every_effect,
    steps_that_fail,
    what_cannot_be_stored,
    places,
    beside_each_other,
    parked,
    swallows,
    says_that_it_did_not_happen,
    too_large,
    too_many,
    writes,
    no_json,
]


@pytest.mark.parametrize("body", ENDS, ids=lambda body: body.__name__)
def test_a_body_comes_to_the_same_in_the_database_and_in_memory(lab: Lab, body: Body, settings: Any) -> None:
    settings.WAKEFUL_MAX_ENTRIES = 20
    in_database = database(lab.run(body))

    assert memory(body) == in_database


def test_a_failed_step_is_tried_as_often_as_its_retries_allow(lab: Lab) -> None:
    tries: list[int] = []

    def flaky() -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("busy")
        return len(tries)

    def body(run: AgentRun) -> Any:
        return [run.step("flaky", flaky, retries=2), caught(lambda: run.step("never", lambda: 1 / 0, retries=1))]

    run = lab.run(body)
    for _ in range(4):
        run = lab.later(run)
    in_database = database(run)
    tries.clear()

    assert (memory(body), len(tries)) == (in_database, 3)
    assert in_database.detail == [3, "StepFailed: step 'never' failed: ZeroDivisionError: division by zero"]
    assert [entry[5] for entry in in_database.entries] == [3, 2]


# Bodies that wait


def waits_for_everything(run: AgentRun) -> Any:
    run.step("ask", greet, "before")
    paid = run.wait_for_event("invoice.paid", match={"customer": 7}, timeout="7d")
    answer = run.ask_approval("Refund?", arguments={"cents": 100})
    run.sleep("1d")
    children = [run.spawn("picker", item) for item in (1, 2)]
    return [paid and paid.data, answer.decision, answer.arguments, run.gather(*children)]


ANSWERS = {
    "event invoice.paid#1": {"customer": 7, "sum": 12},
    "approval#1": "approved",
    "join#1": [10, 20],
}


def test_a_wait_is_recorded_in_the_same_way_by_each_store(lab: Lab) -> None:
    lab.declare(lambda run: run.input * 10, "picker", durable=False)
    run = lab.run(waits_for_everything)
    make_event(type="invoice.paid", data={"customer": 7, "sum": 12})
    lab.go_on(run)
    decide(Approval.objects.get().id, decision="approve", by="ada")
    run = hear(lab, lab.later(lab.go_on(run)))
    in_database = database(run)

    assert memory(waits_for_everything, waits=ANSWERS, run_id=run.pk) == in_database
    assert in_database.detail == [{"customer": 7, "sum": 12}, "approved", {"cents": 100}, [10, 20]]


# Code that has changed since


def before(run: AgentRun) -> None:
    run.step("first", lambda: 1)
    run.step("event went", lambda: 2, key=1)
    run.random()
    run.wait_for_event("go", match={"n": 7})


def change(*steps: Callable[[AgentRun], Any]) -> Body:
    def after(run: AgentRun) -> list[Any]:
        return [step(run) for step in steps]

    return after


def first(run: AgentRun) -> Any:
    return run.step("first", lambda: 1)


@pytest.mark.parametrize(
    "after",
    [
        change(),
        change(first),
        change(lambda run: run.step("other", lambda: 1)),
        change(first, lambda run: run.step("new", lambda: 5, key="k"), lambda run: run.random() < 1),
        change(first, lambda run: run.uuid()),
        change(first, lambda run: run.random() < 1, lambda run: run.wait_for_event("go", match={"n": 8})),
        change(first, lambda run: run.random() < 1, lambda run: run.wait_for_event("go", match={"n": 7}, source="x")),
        change(first, lambda run: run.random() < 1, lambda run: run.wait_for_event("went")),
        change(first, lambda run: run.random() < 1, lambda run: run.sleep(1)),
        change(first, lambda run: run.wait_for_event("went", key="1")),
        change(first, lambda run: run.random() < 1, lambda run: run.step("event go#1", lambda: 1)),
        change(first, lambda run: run.random() < 1, lambda run: run.wait_for_event("go", match={"n": 7.0}) is None),
    ],
)
def test_changed_code_fits_the_journal_or_does_not_in_the_same_words(lab: Lab, after: Body) -> None:
    run = lab.run(before)
    assert run.status == "waiting"
    lab.declare(after)
    make_event(type="go", data={"n": 7})
    in_database = database(lab.go_on(run))

    journal = Journal()
    with pytest.raises(Unanswered):
        run_agent(lab.declare(before), journal=journal)
    assert memory(after, journal=journal, waits={"event go#1": {"n": 7}}) == in_database


def test_a_step_that_was_begun_and_never_ended_is_parked(lab: Lab) -> None:
    run = lab.run(parked)
    journal = Journal()
    memory(parked, journal=journal)
    Run.objects.filter(pk=run.pk).update(status="queued", slot=None)

    in_database = database(lab.crash(run))

    assert in_database.detail == "step 'pay' has begun and not ended; it is unknown whether it happened"
    assert memory(parked, journal=journal) == in_database


# Shadow runs


@pytest.mark.parametrize(
    "body", [every_effect, beside_each_other, waits_for_everything], ids=lambda body: body.__name__
)
def test_a_shadow_run_gets_the_recorded_entries(lab: Lab, body: Body) -> None:
    lab.declare(lambda run: run.input * 10, "picker", durable=False)
    event, trigger, run = happened(lab, body)
    in_database = database(run)
    Group.objects.all().delete()

    tried = shadow_event(event, trigger, by="test")

    assert (tried.outcome, tried.error, tried.not_asked) == (Outcome.SUCCEEDS, "", [])
    assert tried.result == in_database.detail
    results = "results of join#1"  # goes with its wait
    assert {entry.key for entry in tried.entries} == {entry[0] for entry in in_database.entries} - {results}
    done = {entry.key for entry in tried.entries if entry.how == "done"}
    assert done == {entry[0] for entry in in_database.entries if entry[3] == "transactional"}


@pytest.mark.parametrize("body", [places, too_large, writes, no_json], ids=lambda body: body.__name__)
def test_a_shadow_run_ends_as_in_the_database(lab: Lab, body: Body) -> None:
    event, trigger, run = happened(lab, body)
    in_database = database(run)

    tried = shadow_event(event, trigger, by="test")

    assert (tried.error or tried.result) == in_database.detail


def happened(lab: Lab, body: Body) -> tuple[Event, Trigger, Run]:
    """A run of this body that an event started, as far as it goes when all that it waits for comes."""
    lab.declare(body)
    trigger = make_trigger("durable", policy={"durable": True, "retries": 0})
    event = make_event()
    while lab.claim_and_execute() or lab.look():
        pass
    run = Run.objects.get(trigger="durable")
    if run.status == "waiting":
        make_event(type="invoice.paid", data={"customer": 7, "sum": 12})
        lab.go_on(run)
        decide(Approval.objects.get().id, decision="approve", by="ada")
        run = hear(lab, lab.later(lab.go_on(run)))
    run.refresh_from_db()
    return event, trigger, run


# What came of a body


def database(run: Run) -> Came:
    outcomes = {"succeeded": run.result, "uncertain": run.status_reason, "waiting": run.status_reason}
    entries = [entry_of(step) for step in Step.objects.filter(run=run)]
    entries += [(wait.key, wait.position, wait.is_keyed, "wait") for wait in Wait.objects.filter(run=run)]
    return Came(
        end=run.status,
        detail=outcomes.get(run.status, run.error),
        entries=sorted(entries, key=lambda entry: (entry[1], entry[0])),
        emitted=[
            (event.type, event.data, event.ce_id.partition(":")[2])
            for event in Event.objects.filter(ce_id__startswith=f"{run.pk}:").order_by("seq")
        ],
    )


def entry_of(step: Step | RecordedStep) -> tuple[Any, ...]:
    output = None if step.effect == "value" else step.output  # it comes out differently each time
    failure = (step.error, step.error_kind, step.is_permanent)
    return (step.key, step.position, step.is_keyed, step.effect, step.status, step.attempts, output, *failure)


def memory(
    body: Body, *, journal: Journal | None = None, waits: dict[str, Any] | None = None, run_id: UUID | None = None
) -> Came:
    journal = journal or Journal()
    agent = Agent(name="durable", body=body, durable=True)
    end, detail, emitted = "succeeded", None, []
    with transaction.atomic():
        AgentState.objects.all().delete()
        Group.objects.all().delete()
        try:
            done = run_agent(agent, journal=journal, waits=waits, run_id=run_id)
            detail = done.result
            emitted = [(event.type, event.data, event.key) for event in done.emitted]
        except Parked as error:
            end, detail = "uncertain", str(error)
        except Exception as error:
            end, detail = "failed", describe(error)
        transaction.set_rollback(True)
    entries = [entry_of(step) for step in journal.steps.values()]
    entries += [(wait.key, wait.position, wait.is_keyed, "wait") for wait in journal.waits.values()]
    return Came(
        end=end, detail=detail, entries=sorted(entries, key=lambda entry: (entry[1], entry[0])), emitted=emitted
    )
