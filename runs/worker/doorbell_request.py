"""How a worker's parent handles a doorbell whose process is gone."""

from typing import Any

from billiard.exceptions import WorkerLostError
from celery.worker.request import Request


class DoorbellRequest(Request):
    """Celery logs an error where a child is lost. A doorbell has no outcome: the run of that child is lost, or was stopped on purpose,
    and its end is logged with it. What collects errors from the log gets each failure once."""

    def on_failure(self, exc_info: Any, send_failed_event: bool = True, return_ok: bool = False) -> Any:
        raised = getattr(exc_info.exception, "exc", exc_info.exception)
        is_lost = isinstance(raised, (WorkerLostError, SystemExit, KeyboardInterrupt))
        return super().on_failure(exc_info, send_failed_event=send_failed_event, return_ok=return_ok or is_lost)
