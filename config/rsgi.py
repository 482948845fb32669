"""What granian serves: `granian --interface rsgi config.rsgi:application`."""

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
from config.web.migrated import RequireMigrations  # noqa: E402  (models are loaded by now)

# A process that freezes in a transaction holds its locks, a run's key among them, and no rescuer looks for its sessions. While
# a large row is being sent to it, its session is not idle: then it is the connection that times out.
IDLE = """
SELECT set_config('idle_in_transaction_session_timeout', '20s', false), set_config('tcp_user_timeout', '20s', false)
"""


def end_idle_transactions(connection: Any, **kwargs: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(IDLE)


connection_created.connect(end_idle_transactions)
application = Web(
    RequireMigrations(django),
    places=settings.WAKEFUL_WEB_REQUESTS,
    most=settings.WAKEFUL_MAX_BODY,
    patience=settings.WAKEFUL_BODY_TIMEOUT.total_seconds(),
)
be_present()

# Each connection is an open file, and the usual limit of 1,024 is less than granian's --backpressure lets in.
FILES = 8192
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if soft != resource.RLIM_INFINITY and soft < FILES:
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard == resource.RLIM_INFINITY else min(FILES, hard), hard))
