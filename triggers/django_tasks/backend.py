"""The backend of Django's tasks. A task is enqueued by one statement, in the transaction of its caller: it is there if, and only if, the
transaction commits, so no `on_commit` is needed."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import connections
from django.tasks import Task, TaskResult, TaskResultStatus
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.exceptions import InvalidTaskBackend
from django.tasks.signals import task_enqueued
from django.utils import timezone
from django.utils.json import normalize_json

from triggers.django_tasks import results
from triggers.django_tasks.names import EFFECTS, TYPE
from triggers.emit import emit


class TaskBackend(BaseTaskBackend):
    """OPTIONS: `effect`, one of EFFECTS (docs/django-tasks.md), and `using`, the connection to the database of Wakeful."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = {"effect": EFFECTS[0], "using": "default", **self.options}
        self.effect, self.using = options.pop("effect"), options.pop("using")
        if options or self.effect not in EFFECTS:
            raise InvalidTaskBackend(
                f"TASKS[{alias!r}]: OPTIONS are effect, one of {', '.join(EFFECTS)}, and using; not {self.options!r}"
            )

    def enqueue(self, task: "Task[Any, Any]", args: Sequence[Any], kwargs: Mapping[str, Any]) -> "TaskResult[Any, Any]":
        self.validate_task(task)
        asked = {
            "task": task.module_path,
            "args": normalize_json(list(args)),
            "kwargs": normalize_json(dict(kwargs)),
            "queue": task.queue_name,
            "priority": task.priority,
            "run_after": _instant(task.run_after),
            "effect": self.effect,
            "backend": self.alias,
        }
        id = emit(TYPE, asked, subject=task.module_path, using=self.using)
        result: TaskResult[Any, Any] = TaskResult(
            task=task,
            id=str(id),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=asked["args"],
            kwargs=asked["kwargs"],
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> "TaskResult[Any, Any]":
        return results.read(result_id, self.alias, self.using)

    def check(self, **kwargs: Any) -> list[CheckMessage]:
        found = super().check(**kwargs)
        if self.using not in connections:
            found.append(Error(f"TASKS[{self.alias!r}]: there is no database {self.using!r}.", id="wakeful.E043"))
        elif connections[self.using].vendor != "postgresql":
            said = f"TASKS[{self.alias!r}]: the database {self.using!r} is not PostgreSQL."
            hint = "Name the connection to Wakeful's database with OPTIONS = {'using': …}."
            found.append(Error(said, hint=hint, id="wakeful.E044"))
        return found


def _instant(given: datetime | None) -> str:
    if given is None:
        return ""
    return (given if timezone.is_aware(given) else timezone.make_aware(given)).isoformat()
