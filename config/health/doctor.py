"""`manage.py doctor`: checks an installation. Each check yields a finding; a fault comes with its fix."""

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import psycopg
import redis
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.contrib.auth import get_user_model
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection
from django.utils import timezone

from config.health.probes import broker_answers
from config.health.problems import problems
from config.health.situation import read_situation
from config.installation.schema_objects import differences
from config.stack.embedded.binaries import OLDEST_POSTGRES
from runs.actions.incidents import MUTED
from runs.db.encryption import decrypt
from runs.db.poll import readable
from runs.db.schema_check import pending_migrations
from runs.db.sql import database_now, fetch
from runs.models import Incident
from runs.network.broker import BrokerAway, redis_client
from runs.network.broker_options import is_redis
from runs.processes.lease import CLOCKS_APART
from runs.sign import NAMED
from triggers.matching.expressions.cel import compile_each
from triggers.models import Secret, Trigger
from triggers.schedules.explain.missed_fires import Missed, missed_lately

OLDEST_PYTHON = (3, 11)
MANY_FILTERS = 1_000  # that no index finds, on one type: each such event is matched against all of them


@dataclass(frozen=True)
class Finding:
    """The result of one check; with a `fix` it is a fault."""

    text: str
    fix: str = ""


def examine() -> Iterator[Finding]:
    """Every finding, in the order in which checks depend on each other."""
    yield python()
    yield from configuration()
    reachable = database()
    yield reachable
    if not reachable.fix:
        yield session_mode()
        yield clocks()
        schema = migrations()
        yield schema
        if not schema.fix:
            yield users()
            yield replication()
            yield from encryption()
            yield from processes()
            yield from filters()
    yield from broker()


def filters() -> Iterator[Finding]:
    """Types whose events are matched against many filters one by one."""
    rows = Trigger.objects.filter(enabled=True).exclude(filter="").values_list("filter", "types")
    compiled = compile_each({text for text, _ in rows})
    counts = Counter(
        glob for text, types in rows if text in compiled and not compiled[text].conditions for glob in set(types)
    )
    for glob, count in counts.most_common():
        if count <= MANY_FILTERS:
            return
        yield Finding(
            f"{count:,} triggers on {glob} have a filter that no index finds: each such event is matched against all of them",
            'Begin their filters with a condition that few of them share, such as event.data.customer == "…" && …, '
            "or decide in the agent.",
        )


def users() -> Finding:
    """Whether the table of users is there: a project with a user model of its own never makes that of Django's."""
    table = get_user_model()._meta.db_table
    [(found,)] = fetch("SELECT to_regclass(%s) IS NOT NULL", [connection.ops.quote_name(table)])
    if found:
        return Finding(f"users are {get_user_model()._meta.label}")
    return Finding(
        f"the table {table} of the user model {get_user_model()._meta.label} does not exist, although its migrations count as applied",
        "A project with another user model has migrated this database. Name its model in settings of its own (`manage.py init "
        "shop.settings`), or give Wakeful a schema of its own: see docs/beside-your-project.md.",
    )


def python() -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if sys.version_info < OLDEST_PYTHON:
        return Finding(f"Python {version}", "Recreate the virtual environment with Python 3.11 or newer.")
    return Finding(f"Python {version}")


def configuration() -> Iterator[Finding]:
    """Errors of Django's system checks, and Wakeful's own warnings."""
    messages = checks.run_checks(include_deployment_checks=True)
    wrong = [message for message in messages if message.level >= checks.ERROR or str(message.id).startswith("wakeful.")]
    for message in wrong:
        yield Finding(f"{message.id}: {message.msg}", message.hint or "See the message.")
    if not wrong:
        yield Finding("settings are consistent")


def database() -> Finding:
    where = "{HOST}:{PORT}/{NAME}".format(**settings.DATABASES["default"])
    try:
        with connection.cursor() as cursor:
            cursor.execute("SHOW server_version")
            version = cursor.fetchone()[0].split()[0]
    except DatabaseError as error:
        return Finding(
            f"PostgreSQL at {where} does not answer: {str(error).splitlines()[0]}",
            "Start it (`make run` starts the embedded one), or correct DATABASE_URL.",
        )
    if int(version.split(".")[0]) < OLDEST_POSTGRES:
        return Finding(f"PostgreSQL {version} at {where}", f"Upgrade it to PostgreSQL {OLDEST_POSTGRES} or newer.")
    return Finding(f"PostgreSQL {version} at {where}")


def session_mode() -> Finding:
    """A NOTIFY must reach a LISTEN: a transaction-mode pooler gives the two different sessions."""
    channel = f"wakeful_doctor_{uuid4().hex}"
    parameters = connection.get_connection_params()
    with psycopg.connect(**{**parameters, "autocommit": True}) as listener:
        listener.execute(f'LISTEN "{channel}"')
        with connection.cursor() as cursor:
            cursor.execute(f'NOTIFY "{channel}"')
        readable([listener.fileno()], 2)
        heard = next(iter(listener.notifies(timeout=0.1)), None)
    if not heard:
        return Finding(
            "a NOTIFY does not reach its listener",
            "DATABASE_URL points to a transaction-mode pooler: use PostgreSQL's own address, or the pooler's session mode.",
        )
    return Finding("connections keep their session: LISTEN, advisory locks and prepared statements work")


def clocks() -> Finding:
    apart = abs(timezone.now() - database_now())
    if apart > CLOCKS_APART:
        return Finding(
            f"this machine's clock and the database's are {apart.total_seconds():.0f} s apart",
            "Synchronise both (NTP): this machine's clock decides whether a signed webhook is too old.",
        )
    return Finding("clocks agree")


def migrations() -> Finding:
    pending = pending_migrations()
    if pending:
        return Finding(
            f"{len(pending)} migrations are not applied: {', '.join(pending[:3])} …", "Run `manage.py migrate`."
        )
    if found := differences():
        named = ", ".join(str(one) for one in found[:NAMED]) + (" and others" if len(found) > NAMED else "")
        return Finding(
            f"migrations are applied, but the database is not as they make it: {named}",
            "Run `manage.py migrate`, which makes these as this version does. Where a restore was incomplete, repeat it.",
        )
    return Finding("migrations are applied, and functions, triggers and indexes are those of this version")


# Physical standbys; roles that may not see a sender's state get NULL.
STANDBYS = """
SELECT coalesce(application_name, ''), sync_state FROM pg_stat_replication sender
WHERE NOT EXISTS (SELECT FROM pg_replication_slots WHERE active_pid = sender.pid AND slot_type = 'logical')
  AND coalesce(state, '') <> 'backup'
"""
TIMELINE_KNOWN = "SELECT runs_primary_identity() <> ''"


def replication() -> Finding:
    """Commits that a failover would lose."""
    standbys = fetch(STANDBYS)
    [(is_known,)] = fetch(TIMELINE_KNOWN)
    noticed = "" if is_known else "; this server does not report its timeline, so Wakeful cannot detect a failover"
    if not standbys:
        return Finding(f"no physical standby streams from this server{noticed}")
    if any(state is None for _, state in standbys):
        return Finding(
            f"{len(standbys)} standbys stream from this server; this role may not see whether they are synchronous{noticed}",
            "GRANT pg_monitor to the role of DATABASE_URL, so that `doctor` can check what a failover would lose.",
        )
    if all(state == "async" for _, state in standbys):
        named = ", ".join(sorted(name or "unnamed" for name, _ in standbys))
        return Finding(
            f"every standby streams asynchronously ({named}): a failover loses the newest commits, including events that "
            f"were answered with 2xx and intents of at_most_once steps{noticed}",
            "Name a standby in synchronous_standby_names, or accept the loss: docs/upgrade.md, “Failover”.",
        )
    return Finding(f"a standby confirms each commit: a failover to it loses none{noticed}")


def encryption() -> Iterator[Finding]:
    unreadable = []
    for secret in Secret.objects.select_related("source"):
        try:
            decrypt(bytes(secret.ciphertext))
        except (InvalidToken, ImproperlyConfigured, ValueError):
            unreadable.append(secret.source.slug)
    if unreadable:
        yield Finding(
            f"secrets of these sources cannot be decrypted: {', '.join(sorted(set(unreadable)))}",
            "Add the key that encrypted them to WAKEFUL_ENCRYPTION_KEYS again (the first key encrypts, all decrypt), "
            "or rotate their secrets.",
        )
    else:
        yield Finding("secrets of all sources can be decrypted")


def processes() -> Iterator[Finding]:
    """Live processes, and the problems that pages and alarms also show."""
    now = read_situation()
    for kind, count in Counter(process.kind for process in now.processes if process.alive).items():
        yield Finding(f"{count} {kind} alive")
    wrong = problems(now)
    for problem in wrong:
        yield Finding(problem.text, problem.remedy)
    if missed := missed_lately(NAMED + 1):
        yield Finding(_missed(missed))
    if muted := Incident.objects.filter(MUTED).count():
        yield Finding(f"{muted:,} muted incident{'s send' if muted != 1 else ' sends'} no messages")
    if not wrong:
        yield Finding("events are dispatched at once, schedules fire on time, and every queued run has a worker")


def _missed(missed: list[Missed]) -> str:
    named = ", ".join(f"{one.name} ({one.count} ×, {one.reasons})" for one in missed[:NAMED])
    more = " and others" if len(missed) > NAMED else ""
    return f"schedules missed fires in the last day: {named}{more}; `manage.py schedules why NAME --at TIME` gives the reason"


def broker() -> Iterator[Finding]:
    if not broker_answers():
        yield Finding(
            "the broker does not answer: work continues, but late",
            "Start it, or correct CELERY_BROKER_URL (or REDIS_URL).",
        )
        return
    yield Finding("the broker answers")
    if is_redis(settings.CELERY_BROKER_URL):
        yield _eviction()


def _eviction() -> Finding:
    try:
        with redis_client() as client:
            policy = client.config_get("maxmemory-policy").get("maxmemory-policy", "noeviction") if client else ""
    except (redis.RedisError, BrokerAway):
        return Finding("the broker does not report its eviction policy: make sure it is noeviction")
    if policy != "noeviction":
        return Finding(
            f"the broker evicts messages when its memory is full ({policy})",
            "Set maxmemory-policy to noeviction, and use another server for caches.",
        )
    return Finding("the broker keeps its messages when memory is full (noeviction)")
