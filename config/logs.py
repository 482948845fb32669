"""The logging of all processes: readable lines, or one JSON object per line with WAKEFUL_LOG_FORMAT=json."""

import logging.config
import os
import sys
from typing import Any

import structlog
from celery import signals
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http.multipartparser import MultiPartParserError
from structlog.typing import EventDict, Processor

from agents.kernel.redaction import in_object, redacted

CHILD_EXITED = "Process %r pid:%r exited with %r"  # billiard.pool
REFUSALS = (PermissionDenied, SuspiciousOperation, BadRequest, MultiPartParserError)
_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.stdlib.ExtraAdder(),
    structlog.processors.StackInfoRenderer(),
]

# Without local variables: each run that fails is logged with its traceback, and the variables of its body may hold what is personal, a
# query that their repr executes, or megabytes.
_tracebacks = structlog.processors.ExceptionRenderer(structlog.tracebacks.ExceptionDictTransformer(show_locals=False))


def _without_refusals(logger: Any, name: str, event: EventDict) -> EventDict:
    """Strangers and users without rights cause these as often as they like: one line each is enough."""
    given = event.get("exc_info")
    if isinstance(given, tuple) and isinstance(given[1], REFUSALS):
        del event["exc_info"]
    return event


class LostChildren(logging.Filter):
    """The end of a worker's child is a warning: what became of its run is logged with the run, as an error if it has failed for good.
    What collects errors from the log would get one failure twice."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno == logging.ERROR and record.msg == CHILD_EXITED:
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


def configuration(*, format: str, level: str) -> dict[str, Any]:
    """The stdlib's logging configuration, with everything rendered by structlog."""
    renderer: list[Processor]
    if format == "json":
        renderer = [
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _tracebacks,
            _without_secrets,
            structlog.processors.JSONRenderer(),
        ]
    else:
        colors = sys.stderr.isatty() or bool(os.environ.get("FORCE_COLOR"))
        renderer = [
            structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False),
            structlog.processors.format_exc_info,
            _without_secrets,
            structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
        ]
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "structlog": {
                "()": structlog.stdlib.ProcessorFormatter,
                "foreign_pre_chain": [*_SHARED, _without_refusals],
                "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
            }
        },
        "filters": {"lost_children": {"()": LostChildren}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structlog"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Each ring of the doorbell would be two lines; Wakeful logs the runs itself.
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            # It writes the address of each request, and the path of a webhook is often a secret.
            "httpx2": {"level": "WARNING"},
            "django.server": {"handlers": [], "propagate": True},
            # billiard's, which has no handler of its own and keeps its records to itself.
            "multiprocessing": {"handlers": ["stderr"], "filters": ["lost_children"], "propagate": False},
        },
    }


def _without_secrets(logger: Any, name: str, event: EventDict) -> EventDict:
    """Value by value, before the line is made: a secret that is a piece of JSON must not change it."""
    return {key: in_object(value, redacted, keys=key != "exception") for key, value in event.items()}


def configure(configuration: dict[str, Any]) -> None:
    """Set up the stdlib's logging, and structlog on top of it (Django's LOGGING_CONFIG)."""
    logging.config.dictConfig(configuration)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


@signals.setup_logging.connect
def keep_logging_as_it_is(**_: Any) -> None:
    """A receiver of this signal stops Celery from setting up its own handlers."""
