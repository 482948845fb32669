"""Celery's consumer of a worker, which reconnects within a second of the broker's return."""

from functools import partial
from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer

TRY_EVERY = 1.0  # seconds


class Consumer(CeleryConsumer):
    """Set by CELERY_WORKER_CONSUMER."""

    def ensure_connected(self, conn: Any) -> Any:
        # Celery waits two seconds longer after each try, up to 30 s, and has no setting for it: after an outage of a minute a
        # worker stayed disconnected for up to 16 s more.
        conn.ensure_connection = partial(
            conn.ensure_connection, interval_start=TRY_EVERY, interval_step=0, interval_max=TRY_EVERY
        )
        return super().ensure_connected(conn)
