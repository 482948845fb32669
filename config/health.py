"""Whether this process lives, and whether the installation can do its work."""

from collections import Counter
from functools import cache

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.loader import MigrationLoader
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from kombu.exceptions import OperationalError

from config.celery import app
from runs.models import Worker


@never_cache
@require_safe
def live(request: HttpRequest) -> JsonResponse:
    """200 as long as this process answers; restart it when it does not."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """503 while events cannot be accepted. Losing the broker costs latency only: degraded, but 200."""
    try:
        pending = pending_migrations()
        processes = {} if pending else alive_processes()
    except DatabaseError:
        connection.close()
        return JsonResponse({"status": "unavailable", "database": "unreachable"}, status=503)
    broker = "ok" if broker_answers() else "unreachable"
    status = "unavailable" if pending else "ok" if broker == "ok" else "degraded"
    return JsonResponse(
        {
            "status": status,
            "database": "ok",
            "migrations": "pending" if pending else "ok",
            "broker": broker,
            "processes": processes,
        },
        status=503 if pending else 200,
    )


def pending_migrations() -> list[str]:
    """Migrations this code needs and the database has not seen, as app.name."""
    applied = set()
    if "django_migrations" in connection.introspection.table_names():
        with connection.cursor() as cursor:
            cursor.execute("SELECT app, name FROM django_migrations")
            applied = set(cursor.fetchall())
    return [f"{app}.{name}" for app, name in _needed_migrations() if (app, name) not in applied]


def alive_processes() -> dict[str, int]:
    """How many processes of each kind were seen recently, by the database's clock."""
    workers = settings.WAKEFUL_LEASE.total_seconds()
    others = 2.5 * settings.WAKEFUL_SAFETY_LOOK.total_seconds()
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            SELECT kind FROM {Worker._meta.db_table}
            WHERE stopped_at IS NULL
              AND seen_at > clock_timestamp() - CASE WHEN kind = 'worker' THEN make_interval(secs => %s) ELSE make_interval(secs => %s) END
            """,  # noqa: S608  (the name of our table)
            [workers, others],
        )
        return dict(sorted(Counter(kind for (kind,) in cursor.fetchall()).items()))


def broker_answers() -> bool:
    """Whether the broker takes a connection within about two seconds."""
    with app.connection_for_write(connect_timeout=2) as broker:
        try:
            broker.ensure_connection(max_retries=1, timeout=2)
        except (OperationalError, OSError):
            return False
    return True


@cache
def _needed_migrations() -> list[tuple[str, str]]:
    return sorted(MigrationLoader(None).disk_migrations)
