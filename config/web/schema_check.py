"""Refuse requests until all migrations are applied."""

import json
import time
from collections.abc import Callable, Iterable
from typing import Any

from django.db import DatabaseError, connection

from runs.db.schema_check import LOOK_EVERY, NotMigrated, require_migrations

RETRY_AFTER = 5  # seconds


class RequireMigrations:
    """A WSGI application around Django's. While migrations are pending, it answers 503 with the missing command, except for
    health checks; senders of webhooks retry. Once all are applied (`fits`), it no longer checks."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application
        self.fits = False
        self._missing = ""
        self._look_at = 0.0

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if self.fits or environ["PATH_INFO"].startswith("/health/"):
            return self._application(environ, start_response)
        missing = self._look()
        if not missing:
            return self._application(environ, start_response)
        content = json.dumps({"detail": missing}).encode()
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start_response("503 Service Unavailable", [*headers, ("Retry-After", str(RETRY_AFTER))])
        return [content]

    def _look(self) -> str:
        """The missing command, or ""; checked at most once per LOOK_EVERY."""
        if time.monotonic() < self._look_at:
            return self._missing
        try:
            require_migrations()
        except NotMigrated as error:
            self._missing = str(error)
        except DatabaseError:
            connection.close()
            return ""  # the view reports that the database does not answer
        else:
            self.fits, self._missing = True, ""
        self._look_at = time.monotonic() + LOOK_EVERY
        return self._missing
