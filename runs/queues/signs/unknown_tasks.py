"""Messages of Celery tasks that no worker of Wakeful knows, which are kept."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.ports import UNKNOWN_TASK as TOPIC
from runs.queues.unknown_tasks import MOST
from runs.sign import BAD, NAMED, Problem, Sign, age, count

SQL = f"""
SELECT payload->>'task' AS task, payload->>'queue' AS queue, count(*) AS count, {age("min(created_at)")} AS age
FROM (SELECT * FROM runs_outboxmessage WHERE topic = '{TOPIC}' ORDER BY available_at, id LIMIT {MOST}) kept
GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class UnknownTask:
    """How many messages of a task are kept that came from this queue, and for how many seconds the oldest of them has been."""

    task: str
    queue: str
    count: int
    age: float


def problems(rows: Sequence[UnknownTask]) -> Iterator[Problem]:
    if not rows:
        return
    named = ", ".join(f"{one.task} ({one.count:,} from the queue {one.queue})" for one in rows[:NAMED])
    more = " and others" if len(rows) > NAMED else ""
    yield Problem(
        name="unknown-tasks",
        severity=BAD,
        text=f"{count(sum(one.count for one in rows), 'message')} kept of Celery tasks that the worker that got them does not know: "
        f"{named}{more}. Another program sends to a queue of Wakeful's, or a worker lacks an app. None is lost.",
        remedy="If the tasks are yours, add their app to WAKEFUL_APPS of every worker, then `manage.py unknown_tasks put-back`. If another "
        "program sends them, give one of the two another queue (CELERY_TASK_DEFAULT_QUEUE), start a worker of that program, and put "
        "them back. `manage.py unknown_tasks discard` deletes them.",
    )


UNKNOWN_TASKS = Sign(
    name="unknown_tasks", sql=SQL, row=UnknownTask, problems=problems, kinds=("unknown-tasks",), limit=None
)
