"""The real thing as processes, for integration, acceptance and fault tests.

    def test_delivery_becomes_a_run(stack):
        stack.up()                                        # web, beat, dispatcher, one worker; each is ready on return
        with stack.orm():                                 # models now speak to the stack's database
            Source.objects.create(...)
        answer = stack.request("POST", "/hooks/demo/", body=b"{}", headers={...})
        assert answer.status == 202
        eventually(lambda: stack.query("SELECT 1 FROM runs_run WHERE status = 'succeeded'"))

They are real processes, forked from one that has loaded their modules (`tests.support.nurseries`); `by_itself=True` starts them by
their command lines, as in production.

One process at a time: `worker = stack.start("worker", concurrency=2, env={"WAKEFUL_FAILPOINTS": "..."})`, then
`worker.kill()` (kill -9, its children too), `worker.freeze()` / `worker.thaw()` (SIGSTOP / SIGCONT, children too),
`worker.stop()` (SIGTERM, waits), `worker.restart()`, `worker.children()`, `worker.output()`.

Other settings: `make_stack(env={"WAKEFUL_APPS": "shop", "PYTHONPATH": folder})` (migrates the user's apps as well); with
`agents=True` the triggers that its agents declare are there. `SHOP` are those of tests/userapps/shop.
Servers that may be killed: `stack = make_stack(own_servers=True)`, then `stack.servers.postgres.kill()`, `.start()`,
`stack.servers.valkey.kill()`, `.start()`, `.flush()`.

What every process said is in `stack.folder/<name>.log`; a failing start-up prints its end.
"""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

import psutil
import psycopg
import redis
from django.test import override_settings
from psycopg.rows import dict_row

from config.stack import children, embedded
from config.stack.embedded.postgres import DATABASE
from config.stack.nursery import Child
from tests.support import migrated
from tests.support.nurseries import nurseries
from tests.support.servers import TestServers, common

ROOT = Path(__file__).resolve().parents[2]
# Seconds after which a test gives up. A test that passes waits for progress and never for this; a busy machine needs more
# than a quiet one.
PATIENCE = 150.0
LENIENCE = 1 if os.environ.get("WAKEFUL_FULL") else 10
SHOP = {"WAKEFUL_APPS": "shop", "PYTHONPATH": str(ROOT / "tests" / "userapps")}
SHAPING = ("WAKEFUL_APPS", "WAKEFUL_DEMO", "PYTHONPATH")  # settings that decide what a prepared database holds
T = TypeVar("T")


def eventually(look: Callable[[], T], timeout: float = PATIENCE, every: float = 0.05) -> T:
    """What `look` returns as soon as it is true; an AssertionError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (seen := look()):
        assert time.monotonic() < deadline, f"still {seen!r} after {timeout} s"
        time.sleep(every)
    return seen


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """The block takes less than `seconds` on a quiet machine. `make chaos` holds it to that, `make test` to ten times as
    much: no test there depends on the speed of the machine."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < seconds * LENIENCE


@dataclass(frozen=True)
class Answer:
    """What the web process answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Process:
    """One process of a stack."""

    def __init__(
        self,
        stack: "Stack",
        name: str,
        kind: str,
        command: Sequence[str],
        env: Mapping[str, str],
        *,
        by_itself: bool = False,
    ) -> None:
        self.stack = stack
        self.name = name
        self.kind = kind
        self.log = stack.folder / f"{name}.log"
        self._command = command
        self._env = env
        self._by_itself = by_itself
        self._frozen: list[psutil.Process] = []
        self._popen = self._spawn()

    @property
    def pid(self) -> int:
        return self._popen.pid

    def is_alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        return self._popen.poll()

    def children(self) -> list[psutil.Process]:
        """All its descendants, oldest first."""
        try:
            return psutil.Process(self.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """`kill -9` of the process and all its children, as if the machine had died."""
        doomed = self.children()
        if self.is_alive():
            self._popen.kill()
        for child in doomed:
            with _gone_is_fine():
                child.kill()
        children.kill_group(self._popen)
        self._popen.wait()
        self._frozen = []

    def stop(self, timeout: float = PATIENCE) -> int:
        """SIGTERM, then wait; returns the exit code."""
        if self.is_alive():
            self._popen.terminate()
        return self._popen.wait(timeout=timeout)

    def wait(self, timeout: float = PATIENCE) -> int:
        """Wait until it exits by itself; returns the exit code."""
        return self._popen.wait(timeout=timeout)

    def signal(self, sent: signal.Signals) -> None:
        """Send a signal to the process alone."""
        self._popen.send_signal(sent)

    def freeze(self) -> None:
        """SIGSTOP the process and all its children; the parent first, so that it starts no new ones."""
        parent = psutil.Process(self.pid)
        parent.suspend()
        self._frozen = [parent, *self.children()]
        for process in self._frozen[1:]:
            with _gone_is_fine():
                process.suspend()

    def thaw(self) -> None:
        """SIGCONT what `freeze` stopped."""
        for process in reversed(self._frozen):
            with _gone_is_fine():
                process.resume()
        self._frozen = []

    def restart(self, *, wait: bool = True) -> Self:
        """Start it again after a kill or stop; its log goes on."""
        assert not self.is_alive(), f"{self.name} still runs"
        self._popen = self._spawn()
        if wait:
            self.wait_ready()
        return self

    def output(self) -> str:
        """Everything it wrote so far."""
        return self.log.read_text(errors="replace")

    def wait_ready(self, timeout: float = PATIENCE) -> None:
        """Return once it does its work; fail with the end of its log if it does not come to that."""
        deadline = time.monotonic() + timeout
        while not self.is_ready():
            if not self.is_alive() or time.monotonic() > deadline:
                state = "runs but is not ready" if self.is_alive() else f"ended with {self.returncode}"
                raise AssertionError(f"{self.name} {state}:\n" + "\n".join(self.output().splitlines()[-40:]))
            time.sleep(0.05)

    def is_ready(self) -> bool:
        if self.kind == "web":
            return self.stack.is_listening()
        # Host name and pid are those of the row each process registers before it begins to work.
        open_row = "SELECT 1 FROM runs_worker WHERE kind = %s AND pid = %s AND stopped_at IS NULL"
        return bool(self.stack.query(open_row, self.kind, self.pid))

    def _spawn(self) -> Child:
        with self.log.open("ab") as log:
            if self._by_itself:
                return children.spawn(self._command, env=self._env, output=log, cwd=ROOT)
            return nurseries.of(self._env).spawn(self._command, env=self._env, output=log)


def dead(processes: Iterable[Process]) -> list[Process]:
    return [process for process in processes if not process.is_alive()]


def _rows(session: psycopg.Connection[dict[str, Any]], sql: str, parameters: Sequence[Any]) -> list[dict[str, Any]]:
    cursor = session.execute(sql, parameters)
    return cursor.fetchall() if cursor.description else []


class Stack:
    """A whole Wakeful on a database of its own; see the module's docstring."""

    def __init__(
        self,
        folder: Path,
        *,
        database_url: str,
        redis_url: str,
        env: Mapping[str, str],
        servers: embedded.Servers,
        blocker: Any,
    ) -> None:
        self.folder = folder
        self.database_url = database_url
        self.redis_url = redis_url
        self.servers = servers
        self.port = free_port()
        self.processes: list[Process] = []
        self._blocker = blocker
        self._session: psycopg.Connection[dict[str, Any]] | None = None
        self._session_url = ""
        self._is_asking = threading.Lock()
        self.env = {
            **common(),
            "WAKEFUL_HOME": str(folder / "home"),
            "WAKEFUL_PORT": str(self.port),
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "CELERY_BROKER_URL": redis_url,
            **env,
        }

    # Processes

    def up(self, *, workers: int = 1, concurrency: int = 2, beat: bool = True, by_itself: bool = False) -> "Stack":
        """Start web, beat (unless told otherwise), dispatcher and workers; return when all are ready."""
        kinds = ["web", *(["beat"] if beat else []), "dispatcher", *["worker"] * workers]
        started = [self.start(kind, concurrency=concurrency, wait=False, by_itself=by_itself) for kind in kinds]
        for process in started:
            process.wait_ready()
        return self

    def start(
        self,
        kind: str,
        *arguments: str,
        concurrency: int = 2,
        queues: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        wait: bool = True,
        by_itself: bool = False,
        within: Sequence[str] = (),
    ) -> Process:
        """Start a `web`, `beat`, `dispatcher`, `sources` or `worker` (its name is worker, worker-2, …): forked from a prepared
        process, or `by_itself`, as in production. `within`: a command that executes the rest of its line, such as nsenter."""
        python = [sys.executable, "-m"]
        commands = {
            "web": [
                *python,
                "granian",
                "--interface",
                "rsgi",
                "--backpressure",
                "4096",
                "--port",
                str(self.port),
                "config.rsgi:application",
            ],
            "beat": [*python, "celery", "-A", "config", "beat"],
            "dispatcher": [sys.executable, "manage.py", "dispatcher"],
            "sources": [sys.executable, "manage.py", "sources"],
            "caller": [sys.executable, "manage.py", "caller"],
            "worker": [
                *python,
                "celery",
                "-A",
                "config",
                "worker",
                "-c",
                str(concurrency),
                "-n",
                f"w{next(_numbers)}@%h",
            ],
        }
        command = [*within, *commands[kind], *(["-Q", ",".join(queues)] if queues else []), *arguments]
        number = sum(process.kind == kind for process in self.processes) + 1
        name = kind if number == 1 else f"{kind}-{number}"
        process = Process(self, name, kind, command, {**self.env, **(env or {})}, by_itself=by_itself or bool(within))
        self.processes.append(process)
        if wait:
            process.wait_ready()
        return process

    def manage(
        self, *arguments: str, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a `manage.py` command on this stack."""
        return manage({**self.env, **(env or {})}, *arguments, check=check)

    def admit(self) -> None:
        """Create the user `admin` and the token WAKEFUL_API_TOKEN, as `manage.py up` does."""
        from config import settings as shipped
        from config.stack.access import ensure_admin, ensure_operator_token

        with self.orm(), override_settings(PASSWORD_HASHERS=shipped.PASSWORD_HASHERS):
            ensure_admin()
            ensure_operator_token()

    def stop(self) -> None:
        """Kill whatever still runs."""
        for process in reversed(self.processes):
            process.kill()
        if self._session:
            self._session.close()

    # Its database

    def query(self, sql: str, *parameters: Any) -> list[dict[str, Any]]:
        """Rows of the stack's database, through a connection that is kept, since most waits ask every 50 ms."""
        if not self._is_asking.acquire(blocking=False):
            with self._connect() as session:  # another thread's query may be waiting for a lock
                return _rows(session, sql, parameters)
        try:
            if self._session and not self._session.closed and self._session_url == self.database_url:
                try:
                    return _rows(self._session, sql, parameters)
                except psycopg.OperationalError:
                    if not self._session.closed:
                        raise  # it is not the session that is gone
            if self._session:
                self._session.close()  # of the server that was the primary
            self._session, self._session_url = self._connect(), self.database_url
            return _rows(self._session, sql, parameters)
        finally:
            self._is_asking.release()

    def _connect(self) -> psycopg.Connection[dict[str, Any]]:
        # Schemas change under it: nothing is prepared.
        return psycopg.connect(self.database_url, autocommit=True, row_factory=dict_row, prepare_threshold=None)

    @contextmanager
    def orm(self) -> Iterator[None]:
        """Let the models of the test process use the stack's database; nothing is rolled back."""
        from django.db import connection

        from triggers.accept import builtin_source

        url = urlsplit(self.database_url)
        here = {
            "NAME": url.path[1:],
            "HOST": url.hostname,
            "PORT": url.port,
            "USER": url.username,
            "PASSWORD": url.password or "",
        }
        before = {name: connection.settings_dict[name] for name in here}
        assert not connection.in_atomic_block, "a test that uses the database of a stack must not be marked django_db"
        with self._blocker.unblock():
            connection.close()
            connection.settings_dict.update(here)
            builtin_source.cache_clear()  # ids of one database
            try:
                yield
            finally:
                connection.close()
                connection.settings_dict.update(before)
                builtin_source.cache_clear()

    # Its web process

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float = PATIENCE,
    ) -> Answer:
        """One request to the web process. `api` is the same with the test token and JSON."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body=body, headers=dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def api(self, method: str, path: str, data: Any = None) -> Answer:
        """A JSON request to the API with WAKEFUL_API_TOKEN (a row that `load_demo` or the test makes)."""
        headers = {"Authorization": f"Bearer {self.env['WAKEFUL_API_TOKEN']}", "Content-Type": "application/json"}
        return self.request(method, path, body=None if data is None else json.dumps(data).encode(), headers=headers)

    def is_listening(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            if probe.connect_ex(("127.0.0.1", self.port)):
                return False
        try:
            return self.request("GET", "/health/live", timeout=5).status < 500
        except (OSError, http.client.HTTPException):
            return False


class Template:
    """Migrated databases, one for each set of apps; copying one is 20 times faster than migrating again."""

    def __init__(self, servers: TestServers, migrated: str) -> None:
        """`migrated`: the database to begin with, empty if there is none yet."""
        self.servers = servers
        self.names: dict[tuple[object, ...], str] = {}
        self._base = migrated

    def copy(self, name: str, env: Mapping[str, str], *, agents: bool) -> str:
        """The URL of a new database for a stack with these settings."""
        shape = (agents, *(env.get(setting) for setting in SHAPING))
        if shape not in self.names:
            made = f"wakeful_template_{os.getpid()}_{len(self.names)}"
            try:
                self._make(made, env, agents)
            except BaseException:
                self.drop(made)
                raise
            self.names[shape] = made
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{self.names[shape]}"')
        return database_url(self.servers.database_url, name)

    def _make(self, name: str, env: Mapping[str, str], agents: bool) -> None:
        """A copy of one that has our own migrations, with those of the user's apps on top."""
        there = {**common(), **self.servers.env}
        if not self._base:
            self._base = f"wakeful_template_{os.getpid()}"
            self._execute(f'CREATE DATABASE "{self._base}"')
            prepare({**there, "DATABASE_URL": database_url(self.servers.database_url, self._base)}, agents=False)
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{self._base}"')
        there |= {"DATABASE_URL": database_url(self.servers.database_url, name), **env}
        if _has_migrations(env):
            migrate(there)  # the demo's tables are there
        if agents:
            manage(there, "sync_agents")

    def drop(self, name: str) -> None:
        self._execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def _execute(self, sql: str) -> None:
        with psycopg.connect(database_url(self.servers.database_url, "postgres"), autocommit=True) as connection:
            connection.execute(sql)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in [*self.names.values(), self._base]:
            if name:
                self.drop(name)


class StackMaker:
    """Makes stacks and clears them away at the end of the test."""

    def __init__(self, template: Template, folder: Path, blocker: Any) -> None:
        self._template = template
        self._folder = folder
        self._blocker = blocker
        self._cleanup = ExitStack()

    def __call__(
        self, *, env: Mapping[str, str] | None = None, own_servers: bool = False, agents: bool = False
    ) -> Stack:
        """A stack with these settings on top; `own_servers` gives it a PostgreSQL and a Valkey that may be killed, `agents`
        the triggers that its agents declare."""
        number = next(_numbers)
        folder = self._folder / f"stack-{number}"
        folder.mkdir()
        stack = (
            self._on_own_servers(folder, env or {})
            if own_servers
            else self._on_shared_servers(folder, env or {}, number, agents)
        )
        self._cleanup.callback(stack.stop)
        if own_servers:
            prepare(stack.env, agents=agents)
        return stack

    def _on_shared_servers(self, folder: Path, env: Mapping[str, str], number: int, agents: bool) -> Stack:
        name = f"wakeful_stack_{os.getpid()}_{number}"
        url = self._template.copy(name, env, agents=agents)
        self._cleanup.callback(self._template.drop, name)
        # Redis has 16 databases; the tests of one run come one after the other.
        parts = urlsplit(self._template.servers.redis_url)
        redis_url = urlunsplit(parts._replace(path=f"/{1 + number % 15}"))
        with redis.Redis.from_url(redis_url) as client:
            client.flushdb()
        nothing = embedded.Servers(postgres=None, valkey=None)
        return Stack(folder, database_url=url, redis_url=redis_url, env=env, servers=nothing, blocker=self._blocker)

    def _on_own_servers(self, folder: Path, env: Mapping[str, str]) -> Stack:
        from tests.support.servers import servers_for_tests

        own = self._cleanup.enter_context(servers_for_tests(given={}, fill=migrated.fill))
        assert own.embedded.postgres
        return Stack(
            folder,
            database_url=own.embedded.postgres.url_of(migrated.DATABASE if migrated.SHARED in os.environ else DATABASE),
            redis_url=own.redis_url,
            env=env,
            servers=own.embedded,
            blocker=self._blocker,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()


def manage(env: Mapping[str, str], *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A `manage.py` command in a process of its own."""
    command = [sys.executable, "manage.py", *arguments]
    with TemporaryFile() as output, TemporaryFile() as errors:
        process = nurseries.of(env).start(command, env=env, output=output, errors=errors)
        try:
            code = process.wait(timeout=PATIENCE)
        except BaseException:
            process.kill()
            process.wait()
            raise
        for file in (output, errors):
            file.seek(0)
        done = subprocess.CompletedProcess(command, code, output.read().decode(), errors.read().decode())
    assert not check or code == 0, f"manage.py {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}"
    return done


def _has_migrations(env: Mapping[str, str]) -> bool:
    """Has any app of the user's own tables?"""
    folders = [Path(folder) for folder in env.get("PYTHONPATH", "").split(":")]
    return any(
        (folder / app / "migrations").exists() for app in env.get("WAKEFUL_APPS", "").split(",") for folder in folders
    )


def migrate(env: Mapping[str, str]) -> None:
    manage(env, "migrate", "--no-input", "-v0")


def prepare(env: Mapping[str, str], *, agents: bool) -> None:
    """Migrate, the demo's tables too; with `agents` write down the triggers that the agents of this environment declare."""
    if not env["DATABASE_URL"].endswith(f"/{migrated.DATABASE}"):
        migrate({**env, "WAKEFUL_DEMO": "1"})
    elif _has_migrations(env):
        migrate(env)
    if agents:
        manage(env, "sync_agents")


def database_url(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def _gone_is_fine() -> Iterator[None]:
    with suppress(psutil.NoSuchProcess):
        yield


_numbers = count(1)
