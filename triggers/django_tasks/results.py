"""What became of a task, as Django's TaskResult. One SQL function reads it, with Wakeful's rights: the project needs none to its tables."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connections
from django.tasks import Task, TaskResult, TaskResultStatus
from django.tasks.base import TaskError
from django.tasks.exceptions import TaskException, TaskResultDoesNotExist
from django.utils import timezone
from django.utils.module_loading import import_string

from triggers.emit import schema_of

READ = "SELECT {schema}.wakeful_task(%s::uuid)::text"
STATUS = {
    "queued": TaskResultStatus.READY,
    "waiting": TaskResultStatus.READY,
    "running": TaskResultStatus.RUNNING,
    "uncertain": TaskResultStatus.RUNNING,  # until a person resolves it
    "succeeded": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
WAITS = ("held", "resumed", "collected", "joined")  # decisions by which a task runs later
NO_ATTEMPT = ("released",)  # the worker gave it back before its end
NOT_TAKEN = "No trigger has taken this task: TASKS of Wakeful's processes must name the backend, and `sync_agents` must have run since."
# How the agent begins the error of a run whose task raised: `triggers.django_tasks.agent`.
RAISED = re.compile(r"TaskRaised\w*: ((?:\w+\.)+\w+)(?::|$)")


def read(id: object, alias: str, using: str) -> "TaskResult[Any, Any]":
    """TaskResultDoesNotExist: there is no such task, or retention has removed its arguments."""
    key, found = recorded(id, using)
    return result_of(key, found, alias)


def recorded(id: object, using: str) -> tuple[UUID, Mapping[str, Any]]:
    """What is recorded of a task, without an import of its code. TaskResultDoesNotExist: as of `read`."""
    try:
        key = UUID(str(id))
    except ValueError:
        raise TaskResultDoesNotExist(str(id)) from None
    with connections[using].cursor() as cursor:
        cursor.execute(READ.format(schema=schema_of(using)), [key])
        [text] = cursor.fetchone()
    found = json.loads(text) if text else None
    if not found or not found["data"]:
        raise TaskResultDoesNotExist(str(id))
    return key, found


def result_of(id: UUID, found: Mapping[str, Any], alias: str) -> "TaskResult[Any, Any]":
    asked, run = found["data"], found["run"] or {}
    task = task_at(asked["task"])
    if not isinstance(task, Task):
        raise TaskResultDoesNotExist(f"{id}: {asked['task']} is no task any more")
    attempts = [one for one in run.get("attempts") or () if one["outcome"] not in NO_ATTEMPT]
    workers = [one["worker"] or "" for one in attempts] + [run["worker"] for _ in "1" if run.get("worker")]
    begun = [one["started_at"] for one in attempts] + [run["claimed_at"] for _ in "1" if run.get("worker")]
    result: TaskResult[Any, Any] = TaskResult(
        task=task.using(
            priority=asked["priority"], queue_name=asked["queue"], run_after=_local(asked["run_after"]), backend=alias
        ),
        id=str(id),
        status=_status(found),
        enqueued_at=_local(found["enqueued_at"]),
        started_at=_local(run.get("started_at")),
        last_attempted_at=_local(max([*begun[-1:], run["started_at"]]) if begun else None),
        finished_at=_local(run.get("finished_at")),
        args=asked["args"],
        kwargs=asked["kwargs"],
        backend=alias,
        errors=[*_errors(attempts), *_refusals(found)],
        worker_ids=workers,
    )
    if result.status == TaskResultStatus.SUCCESSFUL:
        object.__setattr__(result, "_return_value", run["result"])
    return result


def task_at(path: str) -> "Task[Any, Any] | None":
    """The task that a project has declared at this place; None: there is none."""
    try:
        found = import_string(path)
    except ImportError:
        return None
    return found if isinstance(found, Task) else None


def _status(found: Mapping[str, Any]) -> TaskResultStatus:
    if found["run"]:
        return STATUS[found["run"]["status"]]
    return TaskResultStatus.FAILED if _refusal(found) else TaskResultStatus.READY


def _refusal(found: Mapping[str, Any]) -> str:
    """Why a task became no run and will become none."""
    if found["run"] or not found["is_dispatched"]:
        return ""
    decision = found["decision"]
    if decision is None:
        return NOT_TAKEN
    return "" if decision["outcome"] in WAITS else f"{decision['outcome']}: {decision['reason']}"


def _errors(attempts: Sequence[Mapping[str, Any]]) -> list[TaskError]:
    return [_error(one["error"], one["traceback"]) for one in attempts if one["error"]]


def _refusals(found: Mapping[str, Any]) -> list[TaskError]:
    run, refusal = found["run"] or {}, _refusal(found)
    if run.get("status") == "cancelled":
        refusal = f"cancelled: {run['error'] or 'by a person'}"
    return [_error(refusal, refusal)] if refusal else []


def _error(text: str, traceback: str) -> TaskError:
    raised = RAISED.match(text)
    path = raised[1] if raised else f"{TaskException.__module__}.{TaskException.__qualname__}"
    return TaskError(exception_class_path=path, traceback=traceback or text)


def _local(text: str | None) -> datetime | None:
    """As the project has its times: aware, unless USE_TZ is off."""
    if not text:
        return None
    found = datetime.fromisoformat(text)
    return found if settings.USE_TZ else timezone.make_naive(found)
