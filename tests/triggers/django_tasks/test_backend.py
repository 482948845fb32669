"""Django's tasks as runs. Django has them from 6.0 on: With the locked 5.2 they are left out; `make matrix` runs them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.core.checks import run_checks
from django.db import connection, connections, transaction
from django.tasks import TaskResultStatus, default_task_backend, task, task_backends
from django.tasks.exceptions import InvalidTask, InvalidTaskBackend, TaskResultDoesNotExist, TaskResultMismatch
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from agents import registry
from runs.models import Run
from tests.support.durable import Lab, lab
from triggers.declarations.sync import sync
from triggers.django_tasks.agent import django_task
from triggers.django_tasks.names import AGENT, TYPE
from triggers.models import Decision, Event, Trigger
from wakeful import TaskBackend, emit

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

Status = TaskResultStatus


class Tired(Exception):
    pass


@task
def add(one: int, other: int = 0) -> int:
    return one + other


@task
async def add_async(one: int, other: int = 0) -> int:
    await asyncio.sleep(0)
    return one + await asyncio.to_thread(lambda: other)


@task(takes_context=True)
def who(context: Any) -> list[Any]:
    return [context.task_result.id, context.attempt, context.task_result.status]


@task
def found(name: str, *, fails: bool = False) -> None:
    Group.objects.create(name=name)
    with transaction.atomic():
        Group.objects.create(name=f"{name} too")
    if fails:
        raise Tired("no more\ntoday")


@task
def gives_up() -> None:
    raise SystemExit("not now")


@task
def returns_a_set() -> Any:
    return {1, 2}


@task
def fans_out(count: int) -> None:
    for number in range(count):
        add.enqueue(number)


@pytest.fixture(autouse=True)
def tasks(settings: Any, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # noqa: F811
    settings.TASKS = {
        "default": {"BACKEND": "wakeful.TaskBackend", "QUEUES": []},
        "exact": {"BACKEND": "wakeful.TaskBackend", "QUEUES": [], "OPTIONS": {"effect": "transactional"}},
        "again": {"BACKEND": "wakeful.TaskBackend", "QUEUES": [], "OPTIONS": {"effect": "idempotent"}},
    }
    monkeypatch.setitem(registry._agents, AGENT, django_task)
    lab.versions[AGENT] = "1"
    sync()
    yield


def in_a_loop(call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Django's asynchronous methods use a thread, which has a connection of its own."""

    async def main() -> Any:
        try:
            return await call(*arguments)
        finally:
            await sync_to_async(connections.close_all)()

    return asyncio.run(main())


def work(lab: Lab) -> None:  # noqa: F811
    while lab.look() or lab.claim_and_execute():
        pass


def test_a_task_is_called_once_and_its_value_is_its_result(lab: Lab) -> None:  # noqa: F811
    result = add.enqueue(1, other=2)

    assert (result.status, result.args, result.kwargs, result.attempts) == (Status.READY, [1], {"other": 2}, 0)
    assert default_task_backend.get_result(result.id) == result.task.get_result(result.id)
    work(lab)
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (Status.SUCCESSFUL, 3, 1)
    times = result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at
    assert all(times) and list(times) == sorted(filter(None, times))
    assert result.task == add and result.is_finished and result.errors == []
    assert Run.objects.count() == 1


def test_an_async_task_is_called_too(lab: Lab) -> None:  # noqa: F811
    result = add_async.enqueue(1, other=2)
    work(lab)

    assert in_a_loop(add_async.aget_result, result.id).return_value == 3


def test_a_task_that_is_enqueued_asynchronously_is_there(lab: Lab) -> None:  # noqa: F811
    result = in_a_loop(add.aenqueue, 3)
    work(lab)
    in_a_loop(result.arefresh)

    assert result.return_value == 3


def test_enqueueing_is_one_statement_of_the_callers_transaction() -> None:
    add.enqueue(0)  # finds the schema
    with pytest.raises(LookupError), transaction.atomic():
        add.enqueue(1)
        raise LookupError
    with CaptureQueriesContext(connection) as sent, transaction.atomic():
        result = add.enqueue(2)

    assert [json.loads(json.dumps(event.data))["args"] for event in Event.objects.order_by("seq")] == [[0], [2]]
    assert len([query for query in sent if "wakeful_emit" in query["sql"]]) == 1
    assert len(sent) == 3  # BEGIN and COMMIT
    assert Event.objects.get(pk=result.id).subject == add.module_path


@pytest.mark.parametrize(("backend", "stays"), [("default", True), ("exact", False), ("again", True)])
def test_what_a_task_wrote_before_it_raised_stays_unless_it_is_transactional(
    lab: Lab,  # noqa: F811
    backend: str,
    stays: bool,
) -> None:
    Trigger.objects.filter(slug=AGENT).update(policy={"retries": 0})
    result = found.using(backend=backend).enqueue("a", fails=True)
    work(lab)
    result.refresh()

    assert result.status == Status.FAILED
    assert Group.objects.count() == 2 * stays
    [error] = result.errors
    assert error.exception_class is Tired
    assert "no more\ntoday" in error.traceback and "in found" in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018


def test_a_task_that_raised_is_not_called_again_unless_its_writes_are_undone(lab: Lab) -> None:  # noqa: F811
    once, again = found.enqueue("a", fails=True), found.using(backend="exact").enqueue("b", fails=True)
    work(lab)

    once.refresh()
    again.refresh()
    assert (once.status, once.attempts) == (Status.FAILED, 1)
    assert (again.status, again.attempts, len(again.errors)) == (Status.READY, 1, 1)
    lab.later(Run.objects.get(status="queued"))
    again.refresh()
    assert again.attempts == 2


def test_a_task_may_write_and_the_session_is_read_only_again_after_it(lab: Lab) -> None:  # noqa: F811
    result = found.enqueue("a")
    work(lab)
    result.refresh()

    assert result.status == Status.SUCCESSFUL, result.errors
    assert Group.objects.count() == 2
    with connection.cursor() as cursor:
        cursor.execute("SHOW default_transaction_read_only")
        assert cursor.fetchone() == ("off",)


@pytest.mark.parametrize("failing", [gives_up, returns_a_set])
def test_what_else_ends_a_task_is_its_error(lab: Lab, failing: Any) -> None:  # noqa: F811
    result = failing.enqueue()
    work(lab)
    result.refresh()

    assert result.status == Status.FAILED
    assert result.errors[0].exception_class is (SystemExit if failing is gives_up else TypeError)


def test_a_task_that_wants_its_context_gets_it(lab: Lab) -> None:  # noqa: F811
    result = who.enqueue()
    work(lab)
    result.refresh()

    assert result.return_value == [result.id, 1, "RUNNING"]


def test_an_urgent_task_comes_first_and_a_queue_is_that_of_its_workers(lab: Lab) -> None:  # noqa: F811
    results = {priority: add.using(priority=priority).enqueue(1) for priority in (-100, -1, 0, 1, 100)}
    add.using(queue_name="reports").enqueue(1)
    lab.look()

    by_task = {str(run.event_ids[0]): run.priority for run in Run.objects.filter(queue="default")}
    assert [by_task[results[priority].id] for priority in results] == [9, 6, 5, 4, 0]
    assert Run.objects.filter(queue="reports").count() == 1
    assert results[100].task.get_result(results[100].id).task.priority == 100


def test_a_task_with_run_after_waits_for_it(lab: Lab) -> None:  # noqa: F811
    at = timezone.now() + timedelta(hours=1)
    result = add.using(run_after=at).enqueue(1)
    work(lab)

    waiting = add.get_result(result.id)
    assert (waiting.status, waiting.task.run_after) == (Status.READY, at)
    assert Run.objects.get().due_at == at
    lab.later(Run.objects.get())
    assert add.get_result(result.id).status == Status.SUCCESSFUL


def test_a_task_may_enqueue_many_others(lab: Lab) -> None:  # noqa: F811
    result = fans_out.enqueue(50)
    work(lab)
    result.refresh()

    assert result.status == Status.SUCCESSFUL
    assert Run.objects.filter(status="succeeded").count() == 51


def test_a_task_that_no_trigger_took_has_failed(lab: Lab) -> None:  # noqa: F811
    Trigger.objects.filter(slug=AGENT).update(enabled=False)
    result = add.enqueue(1)
    work(lab)
    result.refresh()

    assert result.status == Status.FAILED
    assert "No trigger has taken this task" in result.errors[0].traceback
    assert issubclass(result.errors[0].exception_class, Exception)


def test_a_task_of_a_paused_trigger_is_ready(lab: Lab) -> None:  # noqa: F811
    Trigger.objects.filter(slug=AGENT).update(paused_at=timezone.now(), paused_reason="by a person")
    result = add.enqueue(1)
    work(lab)
    result.refresh()

    assert Decision.objects.get().outcome == "held"
    assert result.status == Status.READY


def test_there_is_no_result_of_what_is_no_task(lab: Lab) -> None:  # noqa: F811
    result = add.enqueue(1)

    for id in ("123", str(uuid4()), str(emit("order.paid"))):
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(id)
    with pytest.raises(TaskResultMismatch):
        who.get_result(result.id)
    Event.objects.filter(pk=result.id).update(data=None, body=None, headers=None, payload_removed_at=timezone.now())
    with pytest.raises(TaskResultDoesNotExist):
        result.refresh()


def test_only_a_task_that_code_has_enqueued_is_called(lab: Lab) -> None:  # noqa: F811
    asked = {"args": [], "kwargs": {}, "queue": "default", "priority": 0, "run_after": "", "backend": "default"}
    emit(TYPE, {**asked, "task": "os.getcwd", "effect": "at_most_once"})
    emit(TYPE, {**asked, "task": add.module_path, "effect": "thrice"})
    emit(TYPE, {**asked, "task": add.module_path, "effect": "at_most_once", "backend": "other"})
    emit(TYPE, {"queue": 7, "priority": "high", "run_after": "soon"})
    work(lab)

    ended = dict(Run.objects.values_list("error", "status"))
    assert sorted(ended.values()) == ["failed", "failed", "failed", "queued"]  # a newer worker may know the task
    assert Run.objects.filter(due_at__gt=timezone.now() + timedelta(seconds=30)).count() == 1
    for said in (
        "there is no task 'os.getcwd' here",
        "the effect 'thrice'",
        "TASKS['other']",
        "the effect None",
    ):
        assert any(said in error for error in ended), said


def test_signals_of_django_are_sent(lab: Lab) -> None:  # noqa: F811
    heard: list[Any] = []

    def hear(signal: Any, sender: Any, task_result: Any, **_: Any) -> None:
        heard.append((sender, task_result.id, task_result.status))

    for signal in (task_enqueued, task_started, task_finished):
        signal.connect(hear)
    try:
        result = add.enqueue(1)
        work(lab)
    finally:
        for signal in (task_enqueued, task_started, task_finished):
            signal.disconnect(hear)

    assert heard == [(TaskBackend, result.id, status) for status in (Status.READY, Status.RUNNING, Status.SUCCESSFUL)]


def test_what_cannot_be_enqueued_is_refused_as_django_says(settings: Any) -> None:
    with pytest.raises(InvalidTask, match="module level"):
        task(lambda: None)
    with pytest.raises(InvalidTask, match="priority must be a whole number"):
        add.using(priority=101)
    with pytest.raises(InvalidTask, match="aware"):
        add.using(run_after=timezone.now().replace(tzinfo=None))
    with pytest.raises(TypeError):
        add.enqueue(object())  # type: ignore[arg-type]
    settings.TASKS = {"default": {"BACKEND": "wakeful.TaskBackend", "QUEUES": ["mail"]}}
    with pytest.raises(InvalidTask, match="Queue 'default' is not valid"):
        add.enqueue(1)
    assert not Event.objects.exists()


def test_wrong_options_are_named(settings: Any) -> None:
    settings.TASKS = {"default": {"BACKEND": "wakeful.TaskBackend", "OPTIONS": {"effect": "twice"}}}
    with pytest.raises(InvalidTaskBackend, match="at_most_once, idempotent, transactional"):
        task_backends["default"]
    settings.TASKS = {"default": {"BACKEND": "wakeful.TaskBackend", "OPTIONS": {"using": "elsewhere"}}}
    assert "wakeful.E043" in {found.id for found in run_checks()}


def test_the_flags_say_what_the_backend_can() -> None:
    flags = ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority")
    assert all(getattr(TaskBackend, flag) for flag in flags)
