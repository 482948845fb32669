"""The application for granian: `granian --interface rsgi config.rsgi:application`."""

import gc
import os
import resource
from typing import Any

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.db.backends.signals import connection_created

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
django = get_wsgi_application()

from config.health.presence import be_present  # noqa: E402
from config.web.application import Web  # noqa: E402
from config.web.schema_check import RequireMigrations  # noqa: E402  (models are loaded by now)
from config.web.shortcut import Shortcut  # noqa: E402
from runs.db.listen import KEEPALIVES  # noqa: E402

# A web process that freezes in a transaction keeps its locks, possibly on a run's key, and rescue does not end its sessions. If
# it freezes while PostgreSQL sends it a large row, the session is not idle, and the connection times out instead.
IDLE = f"""
SELECT set_config('idle_in_transaction_session_timeout', '20s', false), set_config('tcp_user_timeout', '20s', false),
  {", ".join(f"set_config('{name}', '{value}', false)" for name, value in KEEPALIVES.items())}
"""


def end_idle_transactions(connection: Any, **kwargs: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(IDLE)


connection_created.connect(end_idle_transactions)
migrated = RequireMigrations(django)
application = Web(
    migrated,
    Shortcut(lambda: migrated.fits),
    places=settings.WAKEFUL_WEB_REQUESTS,
    most=settings.WAKEFUL_MAX_BODY,
    patience=settings.WAKEFUL_BODY_TIMEOUT.total_seconds(),
    ingest_sessions=settings.WAKEFUL_INGEST_SESSIONS,
)
be_present()

# What is loaded by now stays: garbage collections, which stop all threads, need not walk through it (a tenth of a second each).
gc.collect()
gc.freeze()

# Each connection is an open file, and granian's --backpressure admits more than the usual limit of 1,024.
FILES = 8192
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if soft != resource.RLIM_INFINITY and soft < FILES:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard == resource.RLIM_INFINITY else min(FILES, hard), hard))
