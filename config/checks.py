"""Django system checks for wrong or unsafe settings. Errors stop every command; `manage.py check --deploy` adds the warnings."""

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from typing import Any

from cryptography.fernet import Fernet
from django.conf import settings
from django.contrib.admin.sites import all_sites
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured

from config.celery import OUR_SCHEDULER
from runs.network import broker_options
from runs.network.mail_server import EXAMPLE, MailServer
from runs.network.outgoing import what_is_wrong_with
from runs.notifications.channels.channel import fault_of
from triggers.matching.flow_control import Rate

# The tag of what commands check before they begin (`runs.management.command`).
SETTINGS = "settings"
LOCAL = {"127.0.0.1", "localhost", "[::1]", "testserver"}
NEW_KEY = "python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"


@register(Tags.admin)
def console(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    """Load the URLs first: Django's own admin check sees no page before."""
    import_module(settings.ROOT_URLCONF)
    for site in all_sites:
        yield from site.check(app_configs)


@register(Tags.security, SETTINGS)
def secret_key(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    try:
        key = settings.SECRET_KEY
    except ImproperlyConfigured:
        key = ""
    if not key:
        yield Error(
            "SECRET_KEY is not set.",
            hint="Set SECRET_KEY or SECRET_KEY_FILE to 50 random characters, the same for every process; "
            "`manage.py up` makes one for a single machine.",
            id="wakeful.E001",
        )
    elif not settings.DEBUG and (len(key) < 32 or len(set(key)) < 5):
        yield Error(
            "SECRET_KEY is short enough to be guessed.",
            hint="Set 50 random characters. An attacker who guesses the key can log in as any account.",
            id="wakeful.E002",
        )


@register(Tags.security, SETTINGS)
def debug_in_public(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    public = set(settings.ALLOWED_HOSTS) - LOCAL
    if settings.DEBUG and public:
        yield Error(
            f"DEBUG is on while ALLOWED_HOSTS names {', '.join(sorted(public))}.",
            hint="Unset DEBUG, or list only local names in ALLOWED_HOSTS. Debug pages show source code and settings.",
            id="wakeful.E003",
        )


@register(Tags.security, SETTINGS)
def encryption_keys(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    for number, key in enumerate(settings.WAKEFUL_ENCRYPTION_KEYS, start=1):
        try:
            Fernet(key)
        except ValueError:
            yield Error(
                f"Key {number} of WAKEFUL_ENCRYPTION_KEYS is not a Fernet key.",
                hint=f"A key is 32 bytes in URL-safe base64. Make one with: {NEW_KEY}",
                id="wakeful.E004",
            )


@register(Tags.security, deploy=True)
def encryption_keys_present(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if not settings.WAKEFUL_ENCRYPTION_KEYS:
        yield Warning(
            "WAKEFUL_ENCRYPTION_KEYS is not set: no source can have a secret.",
            hint=f"Make a key, set it for every process, and keep a copy apart from the database's backups: {NEW_KEY}",
            id="wakeful.W001",
        )


@register(SETTINGS)
def lease(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    # Two renewals may be late, for example because of a slow database, before the worker counts as lost.
    if settings.WAKEFUL_LEASE < 3 * settings.WAKEFUL_LEASE_RENEW:
        yield Error(
            "WAKEFUL_LEASE is less than three times WAKEFUL_LEASE_RENEW.",
            hint="Lengthen the lease or renew it more often; otherwise a slow worker loses its runs.",
            id="wakeful.E005",
        )


@register(SETTINGS)
def waking(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    # The dispatcher looks once more 30 ms after a NOTIFY: by then, commits whose NOTIFY the throttle left out must be visible.
    if timedelta(milliseconds=25) < settings.WAKEFUL_NOTIFY_THROTTLE:
        yield Error(
            "WAKEFUL_NOTIFY_THROTTLE is more than 25 ms.",
            hint="Set it to 25ms or less (default 15ms). Otherwise an event whose NOTIFY was throttled waits for the next "
            "safety look.",
            id="wakeful.E006",
        )


@register(SETTINGS)
def atomic_timeout(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    long = timedelta(minutes=10)
    if long < settings.WAKEFUL_ATOMIC_TIMEOUT:
        yield Warning(
            "WAKEFUL_ATOMIC_TIMEOUT is more than ten minutes.",
            hint="Make slow agents durable instead. An atomic agent is one transaction, and VACUUM cannot clean up the "
            "database during a long transaction.",
            id="wakeful.W002",
        )


@register(deploy=True)
def scheduler(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if settings.CELERY_BEAT_SCHEDULER != OUR_SCHEDULER:
        yield Warning(
            f"CELERY_BEAT_SCHEDULER is {settings.CELERY_BEAT_SCHEDULER}.",
            hint=f"Unset it to use {OUR_SCHEDULER}. Other schedulers ignore catch-up, jitter, active hours, excluded days and "
            "limits, record no skips, and fire twice if two Beats run.",
            id="wakeful.W004",
        )


@register(SETTINGS)
def broker(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    # Neither is quoted: both may hold a password.
    for fault, fix in broker_options.faults(settings.CELERY_BROKER_URL, settings.WAKEFUL_BROKER_OPTIONS):
        yield Error(fault, hint=fix, id="wakeful.E010")


@register(Tags.database)
def pooler(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    # 6543 is the transaction-mode port of the best-known hosted poolers.
    if str(settings.DATABASES["default"].get("PORT")) == "6543":
        yield Warning(
            "DATABASE_URL looks like a transaction-mode pooler (port 6543).",
            hint="Use the direct or the session-mode address: LISTEN, advisory locks and prepared statements need a session "
            "of their own. `manage.py doctor` tests this.",
            id="wakeful.W003",
        )


@register(SETTINGS)
def queues(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if taken := {"all", "*"} & set(settings.WAKEFUL_QUEUES):
        yield Error(
            f"WAKEFUL_QUEUES names a queue {min(taken)!r}.",
            hint="Rename that queue: `pause` and `resume` use this name for all queues.",
            id="wakeful.E008",
        )
    if not settings.WAKEFUL_QUEUES:
        yield Error(
            "WAKEFUL_QUEUES is empty: workers would execute nothing.",
            hint="Name at least one queue, or unset it for the default queue.",
            id="wakeful.E007",
        )


@register(SETTINGS)
def loop_rate(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    try:
        Rate.parse(settings.WAKEFUL_LOOP_RATE)
    except ValueError as error:
        yield Error(
            f"WAKEFUL_LOOP_RATE is not valid: {error}.",
            hint="Set the number of rounds that a loop of triggers may make per period, e.g. 20/1m (the default).",
            id="wakeful.E009",
        )


@register(SETTINGS)
def outgoing_urls(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    # The address itself is a secret: it is not quoted.
    for name in ("WAKEFUL_HEARTBEAT_URL", "WAKEFUL_ALARM_URL"):
        if (url := getattr(settings, name)) and (wrong := what_is_wrong_with(url)):
            yield Error(
                f"{name} is not a usable URL: {wrong}.",
                hint="Set a complete URL, e.g. https://monitor.example.org/ping/1, or unset it.",
                id="wakeful.E030",
            )


@register(SETTINGS)
def mail_server(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if settings.EMAIL_URL:
        try:
            MailServer.parse(settings.EMAIL_URL)
        except ValueError as error:
            yield Error(
                f"EMAIL_URL is not usable: {error}.",
                hint=f"Set the address of your mail server, e.g. {EXAMPLE}, or unset it.",
                id="wakeful.E031",
            )


@register(SETTINGS)
def notify_to(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    # The address itself may be a secret: it is not quoted.
    if settings.WAKEFUL_NOTIFY_TO and (fault := fault_of(settings.WAKEFUL_NOTIFY_TO)):
        yield Error(
            f"WAKEFUL_NOTIFY_TO is not usable: {fault}.",
            hint="Set one address, e.g. mailto:ops@example.com, https://host/hook#whsec_… or inbox:admin, or unset it.",
            id="wakeful.E032",
        )


@register(SETTINGS)
def site_url(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if settings.WAKEFUL_URL and (wrong := what_is_wrong_with(settings.WAKEFUL_URL)):
        yield Error(
            f"WAKEFUL_URL is not a usable URL: {wrong}.",
            hint="Set the address that people open this site at, e.g. https://wakeful.example.com, or unset it.",
            id="wakeful.E033",
        )


@register(SETTINGS)
def retention(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if settings.WAKEFUL_KEEP_EVENTS < settings.WAKEFUL_KEEP_PAYLOADS:
        yield Error(
            "WAKEFUL_KEEP_EVENTS is less than WAKEFUL_KEEP_PAYLOADS.",
            hint="Keep events at least as long as their payloads: deleting an event deletes its payload.",
            id="wakeful.E020",
        )
    if timedelta(days=3) > settings.WAKEFUL_KEEP_EVENTS:
        yield Warning(
            "WAKEFUL_KEEP_EVENTS is less than three days.",
            hint="Keep events for three days or more: senders repeat a delivery for days, and a repeated delivery whose event "
            "is deleted is processed again.",
            id="wakeful.W020",
        )
    if timedelta(hours=1) <= settings.WAKEFUL_PRUNE_BUDGET:
        yield Warning(
            "WAKEFUL_PRUNE_BUDGET is an hour or more.",
            hint="Set less than an hour: pruning starts every hour and occupies one child of a worker for this time.",
            id="wakeful.W021",
        )


@register(SETTINGS)
def tool_query(app_configs: Any, **_: Any) -> Iterator[CheckMessage]:
    if settings.WAKEFUL_QUERY_TABLES and not settings.WAKEFUL_QUERY_URL:
        yield Warning(
            "WAKEFUL_QUERY_TABLES is set without WAKEFUL_QUERY_URL: the tool query refuses every call.",
            hint="Make a role that may read these tables alone, and set the URL that it prints: `manage.py query_role`.",
            id="wakeful.W034",
        )
    if settings.WAKEFUL_QUERY_URL and not settings.WAKEFUL_QUERY_TABLES:
        yield Warning(
            "WAKEFUL_QUERY_URL is set without WAKEFUL_QUERY_TABLES: the tool query refuses every call.",
            hint="Name the tables and views that agents may read, e.g. WAKEFUL_QUERY_TABLES=shop_order,sales.invoice.",
            id="wakeful.W034",
        )
