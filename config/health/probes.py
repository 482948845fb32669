"""Health checks: whether this process answers, and whether the installation works."""

from collections import Counter
from collections.abc import Iterable

import structlog
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.outage import CONNECTION_ERRORS
from runs.db.schema_check import pending_migrations
from runs.network.broker import connection_of_its_own
from runs.processes.alive import alive
from runs.sign import BAD, Problem
from triggers.api.authentication import TokenAuthentication

log = structlog.get_logger(__name__)


@never_cache
@require_safe
def live(request: HttpRequest) -> JsonResponse:
    """200. Restart the process if it does not answer."""
    return JsonResponse({"status": "ok"})


@never_cache
@require_safe
def ready(request: HttpRequest) -> JsonResponse:
    """503 while events cannot be accepted. With other problems the status is degraded, but 200: accepted events are kept.

    Problems are named by kind, with their severity. A token with `runs.view_worker` gets their texts, which quote errors and
    name triggers and agents.
    """
    try:
        pending = pending_migrations()
        processes = {} if pending else alive_processes()
        wrong = [] if pending else problems(read_situation())
        may_read = not pending and _may_read(request)
    except DatabaseError as error:
        connection.close()
        is_away = isinstance(error, CONNECTION_ERRORS)
        if not is_away:
            log.error("health.not_read", error=str(error))
        return JsonResponse({"status": "unavailable", "database": "unreachable" if is_away else "failing"}, status=503)
    broker = "ok" if broker_answers() else "unreachable"
    whole = broker == "ok" and not any(problem.severity == BAD for problem in wrong)
    status = "unavailable" if pending else "ok" if whole else "degraded"
    return JsonResponse(
        {
            "status": status,
            "database": "ok",
            "migrations": "pending" if pending else "ok",
            "broker": broker,
            "processes": processes,
            "problems": _in_full(wrong) if may_read else _in_short(wrong),
        },
        status=503 if pending else 200,
    )


def _may_read(request: HttpRequest) -> bool:
    try:
        known = TokenAuthentication().authenticate(Request(request))
    except AuthenticationFailed:
        return False
    return known is not None and known[0].has_perm("runs.view_worker")


def _in_full(wrong: Iterable[Problem]) -> dict[str, str]:
    return {problem.name: problem.text for problem in wrong}


def _in_short(wrong: Iterable[Problem]) -> dict[str, str]:
    return {problem.kind: problem.severity.value for problem in wrong}


def alive_processes() -> dict[str, int]:
    """The number of live processes of each kind."""
    return dict(sorted(Counter(alive().values_list("kind", flat=True)).items()))


def broker_answers() -> bool:
    """Whether the broker takes a connection within about two seconds."""
    with connection_of_its_own(2.0) as broker:
        try:
            broker.ensure_connection(max_retries=1, timeout=2)
        except Exception as error:
            # Any error of a broker's client: that of Sentinel has its own, and a file of a certificate may be missing.
            log.info("health.no_broker", error=f"{type(error).__name__}: {error}"[:300])
            return False
    return True
