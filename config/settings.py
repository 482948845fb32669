"""Every setting, each read from the environment once. The knobs an operator may turn stand in one list, below."""

import socket
from contextlib import suppress

import django
from celery.schedules import crontab
from django.conf import global_settings
from kombu import Queue

from config import logs, place
from config.console.theme import UNFOLD as UNFOLD
from config.env import Env
from config.labels import require_free_labels
from runs.network import broker_options
from runs.network.mail_server import MailServer

BASE_DIR = place.BASE
MANAGE = place.MANAGE
env = Env()

# What `manage.py up` keeps for the embedded stack: URLs of its servers, generated secrets. The environment wins.
WAKEFUL_HOME = env.path(
    "WAKEFUL_HOME", place.FOLDER / ".wakeful", "folder of the embedded servers and generated secrets", shown=".wakeful"
)
env.read_file(WAKEFUL_HOME / "env")
env.take_keys()

# Agents of agents.library that any installation can use, and that the demo shows.
LIBRARY = "anomaly-explainer, approval-chaser, backlog-heartbeat, daily-digest, deploy-watcher, meeting-prep"

# fmt: off
# --- The knobs: name, default with unit, meaning. `manage.py doctor --knobs` prints them with their values. ---
# The servers
DATABASE = env.postgres("DATABASE_URL", "postgres://app@127.0.0.1:5432/wakeful", "PostgreSQL 15 or newer, direct or through a session-mode pooler")
REDIS_URL = env.text("REDIS_URL", "redis://127.0.0.1:6379/0", "Redis or Valkey: redis://, rediss:// with TLS, or sentinel://a:26379;sentinel://b:26379 with WAKEFUL_BROKER_OPTIONS", secret=True)
CELERY_BROKER_URL = env.text("CELERY_BROKER_URL", REDIS_URL, "Celery's broker, if it is not REDIS_URL: another Redis, or RabbitMQ (amqp://user:password@host:5672/vhost, amqps:// with TLS)", shown="REDIS_URL", secret=True)
# Django
SECRET_KEY = env.text("SECRET_KEY", "", "signs sessions; at least 50 random characters", secret=True)
DEBUG = env.flag("DEBUG", False, "error pages with source code: never where others can reach them")
ALLOWED_HOSTS = env.words("ALLOWED_HOSTS", "127.0.0.1,localhost,[::1]", "host names this site answers to")
CSRF_TRUSTED_ORIGINS = env.words("CSRF_TRUSTED_ORIGINS", "", "origins, with scheme, that forms may come from behind a proxy")
WAKEFUL_HTTPS = env.flag("WAKEFUL_HTTPS", False, "the site is served over https only: secure cookies, HSTS, redirect, X-Forwarded-Proto trusted")
WAKEFUL_PROXIES = env.count("WAKEFUL_PROXIES", int(WAKEFUL_HTTPS), "proxies in front of web; each adds the address it was called from to X-Forwarded-For", low=0, shown="1 with WAKEFUL_HTTPS, else 0")
WAKEFUL_PROXY_NETWORKS = env.networks("WAKEFUL_PROXY_NETWORKS", "", "addresses and networks of these proxies: X-Forwarded-For of others is ignored; a source's allowed addresses need it behind a proxy; empty: it is taken from any")
WAKEFUL_SESSION_IDLE = env.duration("WAKEFUL_SESSION_IDLE", "8h", "a login to the admin ends when it has not been used for this long")
WAKEFUL_PASSWORD_AGAIN = env.duration("WAKEFUL_PASSWORD_AGAIN", "15m", "a login asks for the password again, this long after the last time, before payloads are erased and before tokens, secrets, accounts, sources and the addresses of what is sent are made or changed")
# The installation
WAKEFUL_PORT = env.count("WAKEFUL_PORT", 8000, "port of the web process that `up` starts", high=65535)
WAKEFUL_BIND = env.text("WAKEFUL_BIND", "127.0.0.1", "address that this web process listens at; 0.0.0.0: every address of the host, where a proxy must stand in front")
WAKEFUL_PULSE_FOLDER = env.text("WAKEFUL_PULSE_FOLDER", "", "folder of the files that `manage.py alive` reads: two installations of a user on a host with the same code each need one", shown="wakeful-<user id>-<hash of the folder of the code>, among the temporary files")
WAKEFUL_APPS = env.words("WAKEFUL_APPS", "", "your own Django apps, found through PYTHONPATH")
WAKEFUL_DEMO = env.flag("WAKEFUL_DEMO", False, "the agents and models of agents.library; `up --demo` sets it")
WAKEFUL_LIBRARY = env.words("WAKEFUL_LIBRARY", LIBRARY if WAKEFUL_DEMO else "", "agents of agents.library to install, separated by commas", shown="these with WAKEFUL_DEMO: " + LIBRARY)
WAKEFUL_QUEUES = env.words("WAKEFUL_QUEUES", "default", "queues that a worker serves by default")
CELERY_TASK_DEFAULT_QUEUE = env.text("CELERY_TASK_DEFAULT_QUEUE", "wakeful", "the broker's queue of ordinary periodic tasks and of maintenance; not one that another program reads: Celery's own default is `celery`")
WAKEFUL_BROKER_PREFIX = env.text("WAKEFUL_BROKER_PREFIX", "", "prefix of every key in Redis, such as `staging:`, for two installations on one Redis database; change it only while no process runs")
WAKEFUL_BROKER_OPTIONS = env.members("WAKEFUL_BROKER_OPTIONS", 'options of the broker as a JSON object: {"master_name": "mymaster"} with sentinel://, {"tls": {"ca_certs": "/etc/ca.pem"}} with TLS, and those of kombu\'s transport', secret=True)
WAKEFUL_ADOPT_PERIODIC_TASKS = env.flag("WAKEFUL_ADOPT_PERIODIC_TASKS", False, "Beat fires ordinary periodic tasks too, all that are on this database: only without another Beat on it")
CELERY_BEAT_SCHEDULER = env.text("CELERY_BEAT_SCHEDULER", "triggers.beat:Scheduler", "what fires schedules; `django_celery_beat.schedulers:DatabaseScheduler` goes back to django-celery-beat's own")
WAKEFUL_CONCURRENCY = env.count("WAKEFUL_CONCURRENCY", 2, "children of the worker that `manage.py up` starts")
WAKEFUL_ENCRYPTION_KEYS = env.words("WAKEFUL_ENCRYPTION_KEYS", "", "Fernet keys for secrets at rest: the first encrypts, all decrypt", secret=True)
WAKEFUL_ADMIN_PASSWORD = env.text("WAKEFUL_ADMIN_PASSWORD", "", "password of the user `admin` that `up` sets up", secret=True)
WAKEFUL_API_TOKEN = env.text("WAKEFUL_API_TOKEN", "", "an API token with all permissions that `up` sets up", secret=True)
WAKEFUL_HEARTBEAT_URL = env.text("WAKEFUL_HEARTBEAT_URL", "", "URL pinged while dispatch, Beat and a worker are alive", secret=True)
WAKEFUL_HEARTBEAT_EVERY = env.duration("WAKEFUL_HEARTBEAT_EVERY", "1m", "time between two of these pings")
WAKEFUL_ALARM_URL = env.text("WAKEFUL_ALARM_URL", "", "URL that alarms and incidents are sent to as JSON, when they begin and when they are over", secret=True)
EMAIL_URL = env.text("EMAIL_URL", "", "mail server of notifications and of Django's send_mail: smtp://user:password@host:587/?tls=starttls&from=wakeful@example.com, or smtps://…", secret=True)
WAKEFUL_NOTIFY_TO = env.text("WAKEFUL_NOTIFY_TO", "", "recipient of notifications that name none, beside those in the console: mailto:ops@example.com, https://host/hook#whsec_…, a Slack webhook, inbox:admin, or a URL of apprise", secret=True)
WAKEFUL_NOTIFY_NETWORKS = env.networks("WAKEFUL_NOTIFY_NETWORKS", "", "networks of your own that webhooks and other services of recipients may be in, such as 10.1.0.0/16; public addresses are always allowed, and WAKEFUL_NOTIFY_TO anywhere")
WAKEFUL_URL = env.text("WAKEFUL_URL", "", "address of this site in links of notifications, such as https://wakeful.example.com", shown="made of ALLOWED_HOSTS, WAKEFUL_HTTPS and WAKEFUL_PORT")
WAKEFUL_ZONE = env.zone("WAKEFUL_ZONE", "UTC", "time zone of this site, such as Europe/Vienna: of its nights and of the morning digest")
WAKEFUL_DIGEST_HOUR = env.hour("WAKEFUL_DIGEST_HOUR", "7", "hour of WAKEFUL_ZONE at which a notification sums up the night, if there is something to report; empty: none")
WAKEFUL_ALARM_AFTER = env.duration("WAKEFUL_ALARM_AFTER", "1m", "time a fault lasts before it is an alarm")
WAKEFUL_ALARM_LAG = env.duration("WAKEFUL_ALARM_LAG", "10m", "time a ready run waits for a worker before it is an alarm")
WAKEFUL_ALARM_PAUSED = env.duration("WAKEFUL_ALARM_PAUSED", "1h", "time a queue is paused before it is an alarm")
WAKEFUL_ALARM_TRANSACTION = env.duration("WAKEFUL_ALARM_TRANSACTION", "15m", "age of the oldest transaction that is an alarm")
WAKEFUL_INCIDENT_AFTER = env.count("WAKEFUL_INCIDENT_AFTER", 2, "failures of one thing with one cause, without a success between, that open an incident; 0: none do", low=0)
WAKEFUL_INCIDENT_COOLDOWN = env.duration("WAKEFUL_INCIDENT_COOLDOWN", "1h", "time after its end within which an incident opens again instead of a new one, and least time between its messages from then on")
WAKEFUL_INCIDENT_MESSAGES = env.count("WAKEFUL_INCIDENT_MESSAGES", 20, "incidents an hour that open with a message of their own; one alarm covers further ones")
WAKEFUL_ESCALATE_AFTER = env.duration("WAKEFUL_ESCALATE_AFTER", "30m", "time after its message until an urgent incident is escalated that is neither acknowledged, muted nor closed, and then from one recipient of WAKEFUL_ESCALATE_TO to the next")
WAKEFUL_ESCALATE_TO = env.words("WAKEFUL_ESCALATE_TO", "", "recipients or groups that such an incident is escalated to, one after the other, each once, such as lead,management; empty: none")
WAKEFUL_VERSION = env.text("WAKEFUL_VERSION", "", "version of this code, such as a release or a commit; empty: the package's version")
WAKEFUL_HOST_NAME = env.text("WAKEFUL_HOST_NAME", socket.gethostname(), "name of this host in the list of processes", shown="the system's name of the host")
WAKEFUL_LOG_FORMAT = env.text("WAKEFUL_LOG_FORMAT", "text", "text or json", choices=("text", "json"))
WAKEFUL_LOG_LEVEL = env.text("WAKEFUL_LOG_LEVEL", "INFO", "least level that is logged", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
# Events in
WAKEFUL_MAX_BACKLOG = env.count("WAKEFUL_MAX_BACKLOG", 10_000, "undispatched events of senders (webhooks, the API, people) at which webhooks and the API answer 503, and of sources that are read at which nothing is read; others do not count")
WAKEFUL_MAX_SOURCE_BACKLOG = env.count("WAKEFUL_MAX_SOURCE_BACKLOG", max(5_000, WAKEFUL_MAX_BACKLOG // 2), "undispatched events of one source at which it answers 503, or is not read, a tenth of it for an unverified source; with a larger WAKEFUL_MAX_BACKLOG half of that", low=10)
WAKEFUL_MAX_BODY = env.count("WAKEFUL_MAX_BODY", 25 * 2**20, "bytes of the largest webhook or API body (413 above)")
WAKEFUL_BODY_TIMEOUT = env.duration("WAKEFUL_BODY_TIMEOUT", "30s", "time that the body of a request may take (408)")
WAKEFUL_INGEST_SESSIONS = env.count("WAKEFUL_INGEST_SESSIONS", 0, "database sessions with which a web process records deliveries that come together in one transaction, for floods; 0: it records each by itself", low=0, high=16)
WAKEFUL_WEB_REQUESTS = env.count("WAKEFUL_WEB_REQUESTS", 16, "requests that a web process works on at once, each with a database connection", low=13)
WAKEFUL_NOTIFY_THROTTLE = env.duration("WAKEFUL_NOTIFY_THROTTLE", "15ms", "least time between two NOTIFYs of one process")
# Events out
WAKEFUL_OUTBOUND_NETWORKS = env.networks("WAKEFUL_OUTBOUND_NETWORKS", "", "networks of your own that subscriptions may send events to, such as 10.1.0.0/16; public addresses are always allowed")
# Dispatch and execution
WAKEFUL_DISPATCH_BATCH = env.count("WAKEFUL_DISPATCH_BATCH", 500, "events of one dispatch transaction")
WAKEFUL_DISPATCH_SHARDS = env.count("WAKEFUL_DISPATCH_SHARDS", 1, "processes, each with a database session, that dispatch the parts of a large batch at once, for a machine of 16 processors and more (docs/deploy.md); 1: the dispatcher alone", high=64)
WAKEFUL_MAX_MATCH = env.count("WAKEFUL_MAX_MATCH", 2**20, "bytes of data, as JSON, above which no expression reads an event's data")
WAKEFUL_MATCH_TIME = env.duration("WAKEFUL_MATCH_TIME", "1s", "processor time that the expressions of one trigger may take on an event")
WAKEFUL_MATCH_TOTAL = env.duration("WAKEFUL_MATCH_TOTAL", "5s", "processor time that the expressions of all triggers may take on an event")
WAKEFUL_SAFETY_LOOK = env.duration("WAKEFUL_SAFETY_LOOK", "10s", "longest time a process waits before it looks for work; one that has long been idle waits twice as long")
WAKEFUL_LEASE = env.duration("WAKEFUL_LEASE", "8s", "a worker or sources process unseen for this long loses its runs or sources")
WAKEFUL_LEASE_RENEW = env.duration("WAKEFUL_LEASE_RENEW", "2.5s", "time between two renewals of the lease of a worker that runs something, or of a sources process that reads")
WAKEFUL_STAY = env.duration("WAKEFUL_STAY", "1s", "time that one free child of a worker with several waits for the next run after its last one; such a run needs no doorbell; 0s: none waits", may_be_zero=True)
WAKEFUL_SHUTDOWN_GRACE = env.duration("WAKEFUL_SHUTDOWN_GRACE", "20s", "time a stopping worker's runs have to finish")
WAKEFUL_ATOMIC_TIMEOUT = env.duration("WAKEFUL_ATOMIC_TIMEOUT", "60s", "longest transaction of an atomic agent")
WAKEFUL_DURABLE_TIMEOUT = env.duration("WAKEFUL_DURABLE_TIMEOUT", "15m", "longest time a durable agent runs between two waits")
WAKEFUL_GATE_TIMEOUT = env.duration("WAKEFUL_GATE_TIMEOUT", "10s", "longest time the gate of an agent takes to answer")
WAKEFUL_MAX_OUTPUT = env.count("WAKEFUL_MAX_OUTPUT", 2**20, "bytes of the largest output of a step, as JSON")
WAKEFUL_MAX_ENTRIES = env.count("WAKEFUL_MAX_ENTRIES", 20_000, "steps, values and waits in the journal of one run")
WAKEFUL_MAX_CHILDREN = env.count("WAKEFUL_MAX_CHILDREN", 1000, "runs that one run may spawn")
WAKEFUL_MAX_WAKES = env.count("WAKEFUL_MAX_WAKES", 100, "wakes and schedules that the runs of one trigger may have set ahead")
WAKEFUL_MAX_DEPTH = env.count("WAKEFUL_MAX_DEPTH", 8, "links of a causal chain of events and runs")
WAKEFUL_LOOP_RATE = env.text("WAKEFUL_LOOP_RATE", "20/1m", "events from one trigger's runs that may wake a trigger of their own causal chain")
WAKEFUL_SESSION_WAIT = env.duration("WAKEFUL_SESSION_WAIT", "1d", "longest time a run waits for a session that another run holds; it fails after that")
WAKEFUL_FAILPOINTS = env.text("WAKEFUL_FAILPOINTS", "", "fault tests only: named points where a process dies or sleeps")
# LLM agents
WAKEFUL_MODEL = env.text("WAKEFUL_MODEL", "builtin" if WAKEFUL_DEMO else "", "model of LLM agents that name none, such as openai:gpt-5.2 or anthropic:claude-sonnet-4-6; builtin: deterministic, for demos", shown="builtin with WAKEFUL_DEMO")
WAKEFUL_MODEL_FALLBACKS = env.words("WAKEFUL_MODEL_FALLBACKS", "", "models tried in turn where WAKEFUL_MODEL fails, separated by commas")
WAKEFUL_MODEL_CALLS = env.count("WAKEFUL_MODEL_CALLS", 1000, "requests to models that a caller makes at once, for runs that wait for them")
WAKEFUL_OUTPUT_TOKENS = env.count("WAKEFUL_OUTPUT_TOKENS", 8192, "output tokens that a model request under a cap of money or tokens may give where the agent's settings name no max_tokens")
WAKEFUL_UNPRICED = env.text("WAKEFUL_UNPRICED", "refuse", "refuse or allow requests to models without a known price where a cap of money applies", choices=("refuse", "allow"))
WAKEFUL_BUDGET_DAY_USD = env.money("WAKEFUL_BUDGET_DAY_USD", "US dollars that all runs together may spend on models in a day (UTC); empty: no cap")
WAKEFUL_BUDGET_MONTH_USD = env.money("WAKEFUL_BUDGET_MONTH_USD", "US dollars that all runs together may spend on models in a month (UTC); empty: no cap")
WAKEFUL_HTTP_ALLOW = env.words("WAKEFUL_HTTP_ALLOW", "", "hosts that the tool http_get and the deploy watcher may read, such as api.example.com, *.example.org or example.com:8443")
WAKEFUL_HTTP_NETWORKS = env.networks("WAKEFUL_HTTP_NETWORKS", "", "networks of your own that these hosts and polled sources may be in, such as 10.1.0.0/16")
WAKEFUL_FILE_ROOTS = env.words("WAKEFUL_FILE_ROOTS", "", "directories below which files may be watched and handed to agents, such as /data/in; empty: none")
WAKEFUL_WORK_ROOTS = env.words("WAKEFUL_WORK_ROOTS", "", "directories below which tools of agents read and write files, notes and git, and checklists are kept as files, such as /data/agents; empty: none")
WAKEFUL_QUERY_URL = env.text("WAKEFUL_QUERY_URL", "", "PostgreSQL URL of the role that the tool query reads with, here or at a replica; `manage.py query_role` makes one", secret=True)
WAKEFUL_QUERY_TABLES = env.words("WAKEFUL_QUERY_TABLES", "", "tables and views that the tool query may read, such as shop_order or sales.invoice")
WAKEFUL_QUERY_ROWS = env.count("WAKEFUL_QUERY_ROWS", 100, "rows of the longest answer of the tool query", high=10_000)
WAKEFUL_QUERY_TIME = env.duration("WAKEFUL_QUERY_TIME", "5s", "longest time that a query of the tool query takes")
# Traces and metrics; further standard variables (OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, OTEL_BSP_…) go as well
OTEL_EXPORTER_OTLP_ENDPOINT = env.text("OTEL_EXPORTER_OTLP_ENDPOINT", "", "URL of an OpenTelemetry collector, such as http://127.0.0.1:4318, that receives traces and metrics by OTLP over HTTP; empty: off")
OTEL_EXPORTER_OTLP_HEADERS = env.text("OTEL_EXPORTER_OTLP_HEADERS", "", "headers of requests to the collector, such as authorization=Bearer%20…", secret=True)
OTEL_SERVICE_NAME = env.text("OTEL_SERVICE_NAME", "wakeful", "name of this installation in traces and metrics")
OTEL_SDK_DISABLED = env.flag("OTEL_SDK_DISABLED", False, "no traces and metrics, whatever the endpoint")
OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT = env.flag("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", False, "prompts, answers, arguments and results of tools are in the traces as well")
# Retention
WAKEFUL_KEEP_PAYLOADS = env.duration("WAKEFUL_KEEP_PAYLOADS", "30d", "payloads of events and finished runs are kept this long: data, bodies, inputs, results, errors")
WAKEFUL_KEEP_EVENTS = env.duration("WAKEFUL_KEEP_EVENTS", "90d", "events and the ledger are kept this long; the same event is taken for a new one after that")
WAKEFUL_KEEP_RUNS = env.duration("WAKEFUL_KEEP_RUNS", "90d", "finished runs, their attempts and notifications, and stopped processes are kept this long")
WAKEFUL_KEEP_AUDIT = env.duration("WAKEFUL_KEEP_AUDIT", "730d", "audit entries and past alarms are kept this long")
WAKEFUL_KEEP_RESULTS = env.duration("WAKEFUL_KEEP_RESULTS", "7d", "results of ordinary periodic tasks are kept this long")
WAKEFUL_PRUNE_BUDGET = env.duration("WAKEFUL_PRUNE_BUDGET", "5m", "longest time the hourly pruning takes at once")
WAKEFUL_SWEEP_BUDGET = env.duration("WAKEFUL_SWEEP_BUDGET", "1m", "longest time that sweeps of watched tables take at once, every five minutes")
# --- End of the knobs ---
# fmt: on

KNOBS = env.knobs

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    # Django 6 requires it where its fields are used (postgres.E005), and 5.2 does without its look at the server's types.
    *(["django.contrib.postgres"] if django.VERSION >= (6,) else []),
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "django_celery_beat",
    "django_celery_results",
    "agents",
    "runs",
    "triggers",
    "config",
    *(["agents.library"] if WAKEFUL_DEMO else []),
    *WAKEFUL_APPS,
]
require_free_labels(WAKEFUL_APPS, "WAKEFUL_APPS")
MIDDLEWARE = [
    "config.web.clients.KnowTheClient",
    "config.web.probes.AnswerProbes",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "config.web.static_files.KeepVersions",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "config.web.headers.SetPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "config.web.request_texts.KnowWhatIsSaid",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "config.web.sessions.EndIdleSessions",
    "config.web.prompt_agents.KnowPromptAgents",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "config.web.logins.AnswerRefusals",
    "config.console.access.password_again.AskAgain",
    "config.console.parts.bad_values.AnswerMalformed",
    "config.web.plans.PlanWithValues",
]
ROOT_URLCONF = "config.urls"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "builtins": ["config.console.parts.html"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "config.console.parts.banner.banner",
                "config.console.parts.docs_link.docs_link",
                "config.console.navigation.tabs",
            ],
        },
    }
]
if WAKEFUL_DEMO and not EMAIL_URL:  # its letters are files
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = WAKEFUL_HOME / "mail"

if EMAIL_URL:
    # Django's send_mail uses the same server. A URL that is not usable is reported by a check.
    with suppress(ValueError):
        _mail = MailServer.parse(EMAIL_URL)
        EMAIL_HOST, EMAIL_PORT, EMAIL_HOST_USER, EMAIL_HOST_PASSWORD = (
            _mail.host,
            _mail.port,
            _mail.user,
            _mail.password,
        )
        EMAIL_USE_SSL, EMAIL_USE_TLS = _mail.tls == "ssl", _mail.tls == "starttls"
        EMAIL_TIMEOUT = 10
        DEFAULT_FROM_EMAIL = SERVER_EMAIL = _mail.sender

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
# The body is read once, as bytes, after its length was checked: Django's own limit must not be the lower one.
DATA_UPLOAD_MAX_MEMORY_SIZE = WAKEFUL_MAX_BODY
FILE_UPLOAD_HANDLERS = ["config.web.uploads.RefuseFiles", *global_settings.FILE_UPLOAD_HANDLERS]

DATABASES = {
    "default": {
        **DATABASE,
        # A connection is kept for the life of its process; close_old_connections() replaces a broken one.
        "CONN_MAX_AGE": None,
        "CONN_HEALTH_CHECKS": False,
        "OPTIONS": {
            # Of Wakeful's own statements (runs.db): prepared ones cost PostgreSQL 450 instead of 800 us a run. Those of the team and of
            # the ORM are as Django sends them elsewhere, and never prepared.
            "prepare_threshold": 2,
            "fallback_application_name": "wakeful",
            # A database host that vanished without closing its connections is noticed within about 25 s, not after two
            # hours.
            "connect_timeout": 5,
            # Connect to a writable server: choose it among several hosts, or wait for a single host to become writable.
            "target_session_attrs": "read-write",
            "keepalives": 1,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 25_000,
            **DATABASE.get("OPTIONS", {}),
        },
    }
}

DATABASE_ROUTERS = ["config.routing.OursAreInDefault"]
# The settings module of the project that this installation stands beside, and its database; see config.beside.
WAKEFUL_PROJECT = ""
WAKEFUL_PROJECT_DATABASE: dict[str, object] = {}

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]
AUTHENTICATION_BACKENDS = ["config.web.logins.Brake", "django.contrib.auth.backends.ModelBackend"]
PASSWORD_HASHERS = ["config.web.passwords.BoundedHasher", *global_settings.PASSWORD_HASHERS[1:]]
LOGIN_URL = "admin:login"
LOGIN_REDIRECT_URL = "admin:index"
SESSION_COOKIE_AGE = int(WAKEFUL_SESSION_IDLE.total_seconds())
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = WAKEFUL_HTTPS
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if WAKEFUL_HTTPS else None
SECURE_HSTS_SECONDS = 365 * 86400 if WAKEFUL_HTTPS else 0
SECURE_REDIRECT_EXEMPT = [r"^health/", r"^metrics$"]  # probes and scrapes come from inside, over plain http

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "config" / "static_overrides"]
STORAGES = {**global_settings.STORAGES, "staticfiles": {"BACKEND": "config.web.static_files.VersionedStorage"}}
# Served straight from the apps' folders: nothing to collect before the first start.
WHITENOISE_USE_FINDERS = True

DEFAULT_EXCEPTION_REPORTER = "config.web.error_pages.Reporter"
DEFAULT_EXCEPTION_REPORTER_FILTER = "config.web.error_pages.Filter"

LOGGING_CONFIG = "config.logs.configure"
LOGGING = logs.configuration(format=WAKEFUL_LOG_FORMAT, level=WAKEFUL_LOG_LEVEL)

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["triggers.api.authentication.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["triggers.api.authentication.HasPermission"],
    "DEFAULT_SCHEMA_CLASS": "config.api_schema.Operations",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["rest_framework.parsers.JSONParser"],
    "UNAUTHENTICATED_USER": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Wakeful",
    "DESCRIPTION": "Events in, runs out: what woke an agent, what it did, and what to do about it.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "APPEND_COMPONENTS": {
        "schemas": {
            "Faults": {
                "type": "object",
                "description": "What is wrong, by field: texts, or the faults of its parts by name or in their order.",
                "properties": {
                    "detail": {"type": "string", "description": "what is wrong with the request as a whole"}
                },
                "additionalProperties": {},
            }
        }
    },
    "ENUM_NAME_OVERRIDES": {
        "ReplayStatus": "triggers.models.Replay.Status",
        "RunStatus": "runs.states.RunStatus",
        "ApprovalStatus": "runs.actions.select.ApprovalStatus",
        "StepStatus": "runs.models.Step.Status",
        "WaitStatus": "runs.models.Wait.Status",
        "DeliveryStatus": "runs.models.Delivery.Status",
        "EventDeliveryStatus": "triggers.models.EventDelivery.Status",
        "IncidentStatus": "runs.actions.incidents.STATUSES",
        "IncidentKind": "runs.models.Incident.Kind",
        "Urgency": "runs.models.Notification.Urgency",
    },
}

# Celery carries doorbells ("queue Q has work") and the user's own PeriodicTasks; PostgreSQL is the queue.
CELERY_TIMEZONE = "UTC"
# By these names no other Celery program on the same Redis database, or the same virtual host, takes or controls anything here.
CELERY_CONTROL_EXCHANGE = "wakeful"
CELERY_EVENT_EXCHANGE = "wakeful.events"
CELERY_TASK_QUEUES = [
    Queue(name, routing_key=name) for name in (CELERY_TASK_DEFAULT_QUEUE, *(f"runs.{name}" for name in WAKEFUL_QUEUES))
]
CELERY_TASK_ACKS_LATE = False  # the broker's ack means nothing: the run's row is the guarantee
CELERY_TASK_IGNORE_RESULT = True
CELERY_RESULT_BACKEND = "django-db"
CELERY_RESULT_EXPIRES = WAKEFUL_KEEP_RESULTS
if CELERY_BEAT_SCHEDULER == "django_celery_beat.schedulers:DatabaseScheduler":
    CELERY_BEAT_SCHEDULER = "triggers.schedules.database_scheduler:DatabaseScheduler"  # theirs passes over what is ours
# Beat keeps these as rows that an operator may switch off. One that comes late finds less to do, so none piles up.
CELERY_BEAT_SCHEDULE = {
    "wakeful.prune": {"task": "wakeful.prune", "schedule": crontab(minute="17"), "options": {"expire_seconds": 3600}},
    "wakeful.tables": {"task": "wakeful.tables", "schedule": crontab(minute="*/5"), "options": {"expire_seconds": 300}},
    "wakeful.digest": {"task": "wakeful.digest", "schedule": crontab(minute="0"), "options": {"expire_seconds": 3600}},
}
# Celery would close the connection around every task: 3.5 times slower. The doorbell's loop replaces broken ones.
CELERY_DB_REUSE_MAX = 2**40
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_BROKER_CONNECTION_TIMEOUT = 4.0  # seconds
CELERY_WORKER_CONSUMER = (
    "runs.worker.consumer:Consumer"  # comes back to a broker within a second, however long that was away
)
CELERY_BROKER_TRANSPORT_OPTIONS = broker_options.transport_options(
    CELERY_BROKER_URL, WAKEFUL_BROKER_OPTIONS, WAKEFUL_BROKER_PREFIX
)
CELERY_BROKER_USE_SSL = broker_options.tls(CELERY_BROKER_URL, WAKEFUL_BROKER_OPTIONS) or False
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
# A ring must not wait behind a busy child. (Redis only; elsewhere Celery would warn and go on.)
CELERY_WORKER_DISABLE_PREFETCH = broker_options.is_redis(CELERY_BROKER_URL)
CELERY_WORKER_SEND_TASK_EVENTS = False
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_WORKER_REDIRECT_STDOUTS = False
