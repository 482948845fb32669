"""The agent that calls Django's tasks. Only what a project has declared with `@task` is called, and only for an event that was emitted
by code with a connection to the database: no sender of webhooks and no token of the API can name a function."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from traceback import format_exception
from typing import Any

from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
from django.tasks.base import TaskError
from django.tasks.exceptions import InvalidTaskBackend, TaskResultDoesNotExist
from django.tasks.signals import task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json

from agents import AgentRun, Permanent, Retry, StepFailed, agent, on
from agents.exceptions import AgentError
from runs.db.session import ordinary
from triggers.django_tasks import results
from triggers.django_tasks.backend import TaskBackend
from triggers.django_tasks.names import AGENT, EFFECTS, INPUT, SOURCE, TYPE

UNKNOWN = timedelta(minutes=1)  # before a task is looked for again


class TaskRaised(AgentError):
    """The task raised, and may be called again. The text begins with the path of the exception's class (`results.RAISED`)."""


class TaskRaisedForGood(Permanent):
    """The task raised, and is not called again."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A task that was enqueued."""

    task: "Task[Any, Any]"
    result: "TaskResult[Any, Any]"
    backend: TaskBackend
    effect: Any

    @classmethod
    def by(cls, run: AgentRun) -> "Asked":
        event = run.event
        if event.source != SOURCE:
            raise Permanent(f"{TYPE} came from {event.source}: a task is enqueued with task.enqueue()")
        data = event.data if isinstance(event.data, dict) else {}
        if data.get("effect") not in EFFECTS:
            raise Permanent(f"the effect {data.get('effect')!r} is none of {', '.join(EFFECTS)}")
        try:
            backend = task_backends[str(data.get("backend"))]
        except InvalidTaskBackend:
            backend = None
        if not isinstance(backend, TaskBackend):
            raise Permanent(f"TASKS[{data.get('backend')!r}] of this worker's settings is no wakeful.TaskBackend")
        try:
            id, recorded = results.recorded(event.id, backend.using)
        except TaskResultDoesNotExist as gone:
            why = f"{TYPE} {event.id} was not enqueued here, but imported or made otherwise, or its arguments have been removed"
            raise Permanent(why) from gone
        # Only now: an import executes a module.
        if (task := results.task_at(str(data.get("task")))) is None:
            # While a new version is deployed, processes that enqueue may have it before this worker.
            why = f"there is no task {data.get('task')!r} here: is the project, in its newest version, on the path of this worker?"
            raise Retry(why, after=UNKNOWN)
        result = results.result_of(id, recorded, backend.alias)
        return cls(task=task, result=result, backend=backend, effect=data["effect"])


@agent(AGENT, durable=True, triggers=[on.event(TYPE, source=SOURCE)], input=INPUT, pause_after=0)
def django_task(run: AgentRun) -> Any:
    """Calls a function that the project has declared with Django's @task, and that its code has enqueued."""
    asked = Asked.by(run)
    given = asked.task.module_path, asked.result.args, asked.result.kwargs  # a person who resolves the step sees them
    if asked.effect == "at_most_once":
        return _value_of(run.step("task", partial(_caught, asked), *given, effect="at_most_once"))
    try:
        return run.step("task", partial(_called, asked), *given, effect=asked.effect)
    except StepFailed as failed:
        error = failed.__cause__ or failed
        raise (TaskRaisedForGood if failed.permanent else TaskRaised)(_text(error)) from error


def _caught(asked: Asked, *given: Any) -> dict[str, Any]:
    """The value of the task, or what it raised: then it has happened too, as far as it went."""
    try:
        return {"value": _called(asked, *given)}
    except Retry:  # it says that nothing happened
        raise
    except (Exception, SystemExit) as error:
        return {"raised": {"text": _text(error), "traceback": _trace(error)}}


def _value_of(ended: Any) -> Any:
    match ended:
        case {"raised": {"text": text, "traceback": traceback}}:
            failure = TaskRaisedForGood(text)
            failure.add_note(traceback)
            raise failure
        case {"value": value}:
            return value
        case _:  # a person has resolved the step, and entered the value
            return ended


def _called(asked: Asked, path: str, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
    result = asked.result
    call: Callable[..., Any] = asked.task.call
    if asked.task.takes_context:
        call = partial(call, TaskContext(task_result=result))
    task_started.send(type(asked.backend), task_result=result)
    try:
        # Transactional, it is within the transaction of the step.
        with nullcontext() if asked.effect == "transactional" else ordinary():
            value = normalize_json(call(*args, **kwargs))
    except (Exception, SystemExit) as error:
        _finished(asked, result, TaskResultStatus.FAILED, error)
        raise
    object.__setattr__(result, "_return_value", value)
    _finished(asked, result, TaskResultStatus.SUCCESSFUL)
    return value


def _finished(
    asked: Asked, result: "TaskResult[Any, Any]", status: TaskResultStatus, error: BaseException | None = None
) -> None:
    object.__setattr__(result, "status", status)
    object.__setattr__(result, "finished_at", timezone.now())
    if error:
        result.errors.append(TaskError(exception_class_path=_path(error), traceback=_trace(error)))
    task_finished.send(type(asked.backend), task_result=result)


def _path(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _text(error: BaseException) -> str:
    return f"{_path(error)}: {error}"


def _trace(error: BaseException) -> str:
    return "".join(format_exception(error))
