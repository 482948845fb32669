"""A newcomer with a project of their own, who follows a page of docs/ word for word: commands and files are read from its fenced blocks."""

import json
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import redis

from config.stack.embedded.binaries import find_postgres
from tests.support.servers import TestServers
from tests.support.stack import ROOT, eventually

BEAT = "python -m celery -A shop beat -l INFO"
APPS = ("accounts", "orders", "notes", "archive")
PASSWORD = "no-secret-of-tests"
TICK = 2  # seconds between two fires of the project's own periodic task
PATIENCE = 180.0  # seconds; a loaded machine takes its time to start
SETTINGS = """
AUTH_USER_MODEL = "accounts.User"
INSTALLED_APPS += ["rest_framework", "rest_framework.authtoken", "django_celery_beat", "accounts", "orders", "notes", "archive"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
DATABASES = {{
    name: {{
        "ENGINE": "django.db.backends.postgresql", "NAME": database, "USER": "shop", "PASSWORD": "{password}", "HOST": "127.0.0.1",
        "PORT": "{port}",
    }}
    for name, database in (("default", "shop"), ("archive", "shop_archive"))
}}
DATABASE_ROUTERS = ["shop.routers.Archive"]
CELERY_BROKER_URL = "{redis}"
CELERY_BEAT_SCHEDULER = "django_celery_beat.schedulers:DatabaseScheduler"
CELERY_BEAT_MAX_LOOP_INTERVAL = 1
REST_FRAMEWORK = {{
    "DEFAULT_AUTHENTICATION_CLASSES": ["rest_framework.authentication.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
}}
TIME_ZONE = "America/New_York"
LANGUAGE_CODE = "de"
USE_THOUSAND_SEPARATOR = True
MEDIA_ROOT = BASE_DIR / "media"
ALLOWED_HOSTS = ["*"]
"""
HISTORY = """
from django.contrib.auth import get_user_model
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask
from archive.models import Entry
from notes.models import Note
from orders.models import Line, Order
from rest_framework.authtoken.models import Token
ada = get_user_model().objects.create_superuser("ada@example.com", "correct horse battery staple")
Token.objects.create(user=ada, key="0123456789")
for number in range(1200):
    order = Order.objects.create(total=number)
Note.objects.create(order=order, author=ada, text="theirs")
Line.objects.create(order=order, text="tea")
Entry.objects.create(text="old")
every, _ = IntervalSchedule.objects.get_or_create(every={tick}, period="seconds")
night, _ = CrontabSchedule.objects.get_or_create(minute="0", hour="3")
PeriodicTask.objects.create(name="theirs", task="orders.tasks.charge", args='["tick"]', interval=every)
PeriodicTask.objects.create(name="at night", task="orders.tasks.charge", args='["night"]', crontab=night)
"""
# Each page of the admin, of each model, as its superuser.
PAGES = """
import json, sys
from django.contrib import admin
from django.contrib.auth import get_user_model
from django.test import Client
from django.urls import reverse
client = Client(raise_request_exception=False)
client.force_login(get_user_model().objects.get(email="ada@example.com"))
found = {}
for model, own in sorted(admin.site._registry.items(), key=lambda pair: pair[0]._meta.label):
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
    row = model._default_manager.first()
    urls = [reverse(f"{name}_changelist"), reverse(f"{name}_add")] + ([reverse(f"{name}_change", args=[row.pk])] if row else [])
    found |= {url: client.get(url).status_code for url in urls}
json.dump(found, sys.stdout)
"""
ORDER = """
from orders.models import Order
print(Order.objects.create(total=5).pk)
"""
SEND = """
from orders.tasks import charge
for number in range(40):
    charge.delay(str(number))
"""
EMIT = """
from django.db import transaction
from orders.models import Order
from wakeful import emit
with transaction.atomic():
    order = Order.objects.create(total=7)
    emit("order.paid", {"order": order.pk})
try:
    with transaction.atomic():
        emit("order.paid", {"order": Order.objects.create(total=8).pk})
        raise LookupError
except LookupError:
    print(order.pk)
"""
PUT_BACK = """
DELETE FROM django_session;
UPDATE accounts_user SET last_login = NULL;
DELETE FROM notes_note WHERE id > 1;
DELETE FROM orders_order WHERE id > 1200;
UPDATE django_celery_beat_periodictask SET last_run_at = NULL, total_run_count = 0, date_changed = '2026-01-01';
UPDATE django_celery_beat_periodictasks SET last_update = '2026-01-01'
"""
# Numbers that a sequence gave to a row that is gone are not given again.
UNEQUAL = re.compile(r"^(SELECT pg_catalog\.setval|\\(un)?restrict)")


@dataclass(frozen=True, kw_only=True)
class Command:
    words: str
    answer: Sequence[str]  # lines that it is said to print


@dataclass(frozen=True, kw_only=True)
class File:
    path: str
    text: str


def steps(page: str, heading: str, said: Mapping[str, str]) -> list[Command | File]:
    """What the page has the reader do below this heading, with `said` for what only the reader can know."""
    [section] = re.findall(rf"(?s)\n## {heading}\n(.*?)(?:\n## |$)", (ROOT / "docs" / page).read_text())
    for placeholder, real in said.items():
        section = section.replace(placeholder, real)
    found: list[Command | File] = []
    for kind, text in re.findall(r"(?s)```(\w+)\n(.*?)```", section):
        if kind == "console":
            for command in re.split(r"(?m)^\$ ", text)[1:]:
                words, *answer = command.splitlines()
                found.append(Command(words=words, answer=answer))
        elif path := re.match(r"# (~/\S+)\n", text):
            found.append(File(path=path[1], text=text))
    return found


class Terminal:
    """A shell in a folder: what a command exports is there for the next."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self.folder = folder
        self.env = dict(env)

    def run(self, command: str, *, typed: str = "", env: Mapping[str, str] = {}) -> str:
        exported = Path(self.env["HOME"]) / "exported"
        script = f"{command}\nstatus=$?\nenv -0 > {exported}\nexit $status"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env={**self.env, **env},
            input=typed,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        if command.startswith("export "):
            pairs = [pair.partition("=") for pair in exported.read_text().split("\0") if pair]
            self.env = {name: value for name, _, value in pairs}
        return done.stdout

    @contextmanager
    def running(self, command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        """The command, until Ctrl-C at the end of the block."""
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            yield process
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class Project:
    """`~/shop`: made by `startproject`, with a custom user model, a second database, and its own Celery worker and Beat. Its history is in
    the database."""

    def __init__(self, home: Path, servers: TestServers, env: Mapping[str, str]) -> None:
        self.home, self.servers = home, servers
        self.folder = home / "shop"
        self.folder.mkdir()
        self.redis = servers.redis_url
        self.port = psycopg.conninfo.conninfo_to_dict(servers.database_url)["port"]
        self._make_databases()
        self.terminal = Terminal(self.folder, env)
        self._generate()

    def _make_databases(self) -> None:
        with psycopg.connect(self.servers.database_url, autocommit=True) as session:
            session.execute(f"CREATE ROLE shop LOGIN CREATEDB PASSWORD '{PASSWORD}'")
            for name in ("shop", "shop_archive"):
                session.execute(f"CREATE DATABASE {name} OWNER shop")

    def url(self, database: str = "shop") -> str:
        return f"postgres://shop:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def _generate(self) -> None:
        self.terminal.run("django-admin startproject shop .")
        for app in APPS:
            self.terminal.run(f"python manage.py startapp {app}")
        files = ROOT / "tests/userapps/newcomer"
        for file in files.rglob("*"):
            if file.suffix in (".py", ".ini"):
                (self.folder / file.relative_to(files)).write_text(file.read_text())
        with (self.folder / "shop/settings.py").open("a") as settings:
            settings.write(SETTINGS.format(password=PASSWORD, port=self.port, redis=self.redis))
        self.terminal.run(f"python manage.py makemigrations {' '.join(APPS)}")
        self.terminal.run("python manage.py migrate && python manage.py migrate --database archive")
        self.python(HISTORY.format(tick=TICK))
        with self.terminal.running(BEAT, self.home / "beat.log"):  # it makes a row of its own when it first runs
            eventually(
                lambda: self.query("SELECT 1 FROM django_celery_beat_periodictask WHERE name ~ 'cleanup'"), PATIENCE
            )
        with redis.Redis.from_url(self.redis) as client:
            client.flushdb()

    def python(self, code: str, **env: str) -> str:
        return self.terminal.run("python manage.py shell -v0", typed=code, env=env)

    def tests(self) -> str:
        return self.terminal.run("python -m pytest -q -p no:cacheprovider")

    def pages(self) -> dict[str, int]:
        found: dict[str, int] = json.loads(self.python(PAGES).splitlines()[-1])
        return found

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url(), autocommit=True) as session:
            cursor = session.execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def done(self) -> Counter[str]:
        with redis.Redis.from_url(self.redis) as client:
            found: list[bytes] = client.lrange("shop:done", 0, -1)
        return Counter(one.decode() for one in found)

    def files(self) -> dict[str, str]:
        found = (file for file in self.folder.rglob("*.*") if file.suffix in (".py", ".ini") and file.is_file())
        return {str(file.relative_to(self.folder)): file.read_text() for file in found}

    def put_back(self) -> None:
        """What it does itself while it runs: it logs in, takes orders, and its Beat notes when it fired."""
        for statement in PUT_BACK.split(";"):
            self.query(statement)

    def dump(self) -> list[str]:
        """Schema and data of both databases, rows in the order of their text."""
        program = find_postgres(None).bin / "pg_dump"
        lines: list[str] = []
        for database in ("shop", "shop_archive"):
            dump = subprocess.run(
                [program, "--no-owner", self.url(database)], capture_output=True, text=True, check=True
            ).stdout
            for part in re.split(r"(?m)^(COPY .*?^\\\.)$", dump, flags=re.DOTALL):
                found = [line for line in part.splitlines() if line and not UNEQUAL.match(line)]
                lines += [found[0], *sorted(found[1:])] if part.startswith("COPY ") else found
        return lines
