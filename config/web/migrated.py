"""A web process that starts before `migrate` accepts nothing until the database fits its code."""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from django.db import DatabaseError, connection

from runs.db.migrated import LOOK_EVERY, NotMigrated, require_migrations

RETRY_AFTER = 5  # seconds


class RequireMigrations:
    """A WSGI application around Django's. While migrations are pending, everything but the health checks is answered 503
    with the command that is missing; senders of webhooks come back. Once the database fits, it is not asked again."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self._fits = False
        self._missing = ""
        self._look_at = 0.0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self._fits or environ["PATH_INFO"].startswith("/health/"):
            return self._application(environ, start_response)
        missing = self._look()
        if not missing:
            return self._application(environ, start_response)
        content = json.dumps({"detail": missing}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start_response("503 Service Unavailable", [*headers, ("Retry-After", str(RETRY_AFTER))])
        return [content]

    def _look(self) -> str:
        """What is missing, as of at most LOOK_EVERY ago, or ""."""
        if time.monotonic() < self._look_at:
            return self._missing
        try:
            require_migrations()
        except NotMigrated as error:
            self._missing = str(error)
        except DatabaseError:
            connection.close()
            return ""  # the view says that the database is away
        else:
            self._fits, self._missing = True, ""
        self._look_at = time.monotonic() + LOOK_EVERY
        return self._missing
