"""The user's ordinary periodic tasks: Beat writes the message to the outbox, whose delivery sends it through Celery."""

import json
from datetime import datetime
from functools import cache
from typing import Any

from celery import current_app
from django_celery_beat.models import PeriodicTask

from runs.models import OutboxMessage
from runs.network import broker
from triggers.exceptions import RuleError
from triggers.schedules.own_tasks import MARK

TOPIC = "task"


def message_of(task: PeriodicTask, nominal: datetime) -> OutboxMessage:
    """The outbox message of one fire of a periodic task; RuleError if its JSON columns hold no JSON."""
    expires = task.expires.isoformat() if task.expires else task.expire_seconds
    payload = {
        "task": task.task,
        "args": _read(task, "args", list),
        "kwargs": _read(task, "kwargs", dict),
        "queue": task.queue,
        "exchange": task.exchange,
        "routing_key": task.routing_key,
        "headers": {**_read(task, "headers", dict), "periodic_task_name": task.name, "celery_beat_task": True},
        "priority": task.priority,
        "expires": expires,
    }
    return OutboxMessage(topic=TOPIC, key=f"{task.pk}:{nominal.isoformat()}", payload=payload)


def _read(task: PeriodicTask, column: str, kind: type[Any]) -> Any:
    if getattr(task, column) == MARK:
        return kind()
    try:
        value = json.loads(getattr(task, column) or "null") or kind()
    except (ValueError, RecursionError) as error:
        raise RuleError(f"its {column} are not JSON: {error}") from None
    if not isinstance(value, kind):
        raise RuleError(f"its {column} must be a JSON {'array' if kind is list else 'object'}")
    return value


def send_periodic_task(payload: dict[str, Any]) -> None:
    """Send the task of such a message to Celery's broker; raises BrokerAway, or what the broker raises."""
    options = {
        name: payload[name]
        for name in ("queue", "exchange", "routing_key", "headers", "priority", "expires")
        if payload[name] is not None
    }
    if isinstance(payload["expires"], str):
        options["expires"] = datetime.fromisoformat(payload["expires"])
    if "exchange" not in options and "routing_key" not in options:
        # RabbitMQ would confirm a message to a queue that was deleted, and drop it. The next try declares the queue again.
        options["mandatory"] = True
    _import_tasks()
    # A task this process has code for brings its own options; any other is known by its name alone.
    with broker.producer() as producer:
        options |= {"producer": producer, "retry": False}
        if task := current_app.tasks.get(payload["task"]):
            task.apply_async(payload["args"], payload["kwargs"], **options)
        else:
            current_app.send_task(payload["task"], payload["args"], payload["kwargs"], **options)


@cache
def _import_tasks() -> None:
    current_app.loader.import_default_modules()
