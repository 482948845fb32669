"""Celery's consumer of a worker: it reconnects within a second of the broker's return, and discards no message of a task that it
does not know."""

from functools import partial
from typing import Any

import structlog
from celery.worker.consumer import Consumer as CeleryConsumer
from django.db import connection

from runs.network import broker
from runs.queues import unknown_tasks

log = structlog.get_logger(__name__)

TRY_EVERY = 1.0  # seconds
LEFT_ALONE = 30.0  # seconds for which a queue is not read whose unknown message could not be kept


class Consumer(CeleryConsumer):
    """Set by CELERY_WORKER_CONSUMER."""

    def ensure_connected(self, conn: Any) -> Any:
        # Celery waits two seconds longer after each try, up to 30 s, and has no setting for it: after an outage of a minute a
        # worker stayed disconnected for up to 16 s more.
        conn.ensure_connection = partial(
            conn.ensure_connection, interval_start=TRY_EVERY, interval_step=0, interval_max=TRY_EVERY
        )
        return super().ensure_connected(conn)

    # Celery discards these, and writes a failure into the results, which another program may share.

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        self.keep(message)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        self.keep(message)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        self.keep(message)

    def keep(self, message: Any) -> None:
        """Keep it in the database, or else leave it in the broker. Acknowledged last: killed before, it is delivered again where
        the broker knows acknowledgements."""
        try:
            kept = unknown_tasks.keep(message)
            log.error("worker.unknown_task", task=kept.task, queue=kept.queue, kept="manage.py unknown_tasks")
        except Exception as error:
            # Any error of the database, or there are too many: the consumer's loop must go on.
            self.leave(message, error)
        finally:
            connection.close()  # rarely needed, and no child may inherit it
        message.ack_log_error(log, self.connection_errors)  # type: ignore[attr-defined]  # the stubs lack it

    def leave(self, message: Any, error: Exception) -> None:
        """Put it at the end of its queue, and read that queue no more for a while: otherwise it would come back at once."""
        written = unknown_tasks.written(message)
        queue = written["queue"]
        try:
            with broker.producer() as producer:
                unknown_tasks.send(producer, written)
            log.error("worker.unknown_task_left", task=written["task"], queue=queue, error=repr(error)[:300])
        except Exception:
            # Neither the database nor the broker took it: the log is what is left.
            log.exception("worker.unknown_task_lost", message=written)
        self.cancel_task_queue(queue)
        self.timer.call_after(LEFT_ALONE, self.add_task_queue, (queue,))
