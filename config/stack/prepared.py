"""A process that has loaded what the programs of a stack need, and forks them: `python -m config.stack.prepared SOCKET`.

`config.stack.nursery` starts it and asks it. A fork costs some ms of CPU where a start costs more than a second, and programs that are
forked share the memory of their modules. A program that is forked is what its command would have started: it has an environment, settings,
logging and a command line of its own. Where that cannot be, because its environment differs in what modules have read already, or because
their files have changed meanwhile, the child executes the command.
"""

import ctypes
import gc
import importlib
import json
import os
import re
import runpy
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import django
from django.conf import Settings, settings
from django.core.management import get_commands
from django.db import connections
from django.db.migrations.loader import MigrationLoader

from config.stack import children

# What a program loads beside the apps, by a word of its command. `config.rsgi` is not here: it begins to work when it is imported.
LOADS = {
    "worker": (
        "celery.bin.celery celery.apps.worker celery.concurrency.prefork celery.worker.autoscale celery.fixups.django "
        "runs.worker.consumer runs.tasks config.tasks django_celery_results.backends.database kombu.transport.redis"
    ),
    "beat": "celery.bin.celery celery.apps.beat triggers.beat kombu.transport.redis",
    "dispatcher": "triggers.management.commands.dispatcher config.health.problems rest_framework.views kombu.transport.redis",
    "sources": "triggers.management.commands.sources config.urls agents.llm.costs.prices",
    "caller": "runs.management.commands.caller",
    "doctor": "config.urls",
    "granian": (
        "granian.cli granian.server granian.rsgi config.urls config.web.application config.web.schema_check "
        "config.health.presence django.core.handlers.wsgi"
    ),
}
# What the first request to a model loads, where agents have loaded the library already and these settings name OpenAI's client.
ASK_MODELS = {"worker", "caller"}
OF_MODELS = ("agents.llm.call", "pydantic_ai.models.openai")
KNOW_KINDS = {"dispatcher", "sources", "granian"}  # programs that ask for every kind of source
# Settings that modules have read and that are read again in the child: see `adopt`.
READ_AGAIN = {"DATABASES", "KNOBS", "LOGGING", "WAKEFUL_ADMIN_PASSWORD"}
# Variables that only settings read, beside the knobs and WAKEFUL_…, or that clients of providers read when they are made.
READ_LATE = ("_API_KEY", "_API_KEY_FILE", "_BASE_URL")
READ_ELSEWHERE = re.compile(r"WAKEFUL_.*|PG[A-Z]+")  # by settings, and by libpq for each session
DEFAULTS = ("DJANGO_SETTINGS_MODULE", "CELERY_SKIP_CHECKS")  # config.celery sets them where it is imported


class Prepared:
    """What this process has loaded, with which environment, from which files."""

    def __init__(self) -> None:
        # As it was given to this process: imports have changed os.environ since.
        given = Path("/proc/self/environ").read_bytes().decode(errors="surrogateescape").split("\0")
        self.environment = dict(line.split("=", 1) for line in given if line)
        django.setup()
        self._files: dict[str, int] = {}
        self._note_files()

    def load(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Load what this command is going to need."""
        words = LOADS.keys() & set(command)
        for name in " ".join(LOADS[word] for word in words).split():
            importlib.import_module(name)
        if (
            words & ASK_MODELS
            and "pydantic_ai" in sys.modules
            and environment.get("WAKEFUL_MODEL", "").startswith("openai")
        ):
            for name in OF_MODELS:
                importlib.import_module(name)
        with suppress(Exception):  # the child finds the same, and reports it
            _load_command(command)
        if words:
            MigrationLoader(None)  # every program asks whether all of them are applied
        if words & KNOW_KINDS:
            importlib.import_module("triggers.sources.kind").kinds()
        self._note_files()
        gc.collect()
        gc.freeze()  # a child that looked through these objects for garbage would write to their memory, and share it no longer

    def is_quiet(self) -> bool:
        """Nothing is here that a fork would tear: a thread, a database session. An app of the user's may begin such things."""
        sessions = [one for one in connections.all(initialized_only=True) if one.connection is not None]
        return len(os.listdir("/proc/self/task")) == 1 and not sessions

    def differences(self, environment: Mapping[str, str]) -> list[str]:
        """Why a fork is not what a start with this environment would be."""
        return [*self._differing_variables(environment), *self._changed_files()]

    def adopt(self, environment: Mapping[str, str]) -> list[str]:
        """Let this process have these settings. Returns names of settings that differ and that modules have read already."""
        defaults = {name: os.environ[name] for name in DEFAULTS if name in os.environ}
        os.environ.clear()
        os.environ.update(defaults | dict(environment))
        read = {name: value for name, value in vars(settings).items() if name != "_wrapped"}
        name = os.environ["DJANGO_SETTINGS_MODULE"]
        sys.modules.pop(name)
        vars(settings).clear()
        vars(settings)["_wrapped"] = Settings(name)
        if differing := [
            name for name in read.keys() - READ_AGAIN if _differ(getattr(settings, name, None), read[name])
        ]:
            return differing
        vars(connections).clear()
        connections.__init__()  # type: ignore[misc]
        django.setup()  # logging
        importlib.invalidate_caches()
        from config.secrets import know_secrets

        know_secrets()
        return []

    def _differing_variables(self, environment: Mapping[str, str]) -> list[str]:
        knobs = {knob.name for knob in settings.KNOBS}
        return [
            name
            for name in self.environment.keys() | environment.keys()
            if self.environment.get(name) != environment.get(name)
            and name.removesuffix("_FILE") not in knobs
            and not READ_ELSEWHERE.fullmatch(name)
            and not name.endswith(READ_LATE)
        ]

    def _note_files(self) -> None:
        for path in _files(list(sys.modules.values())) - self._files.keys():
            self._files[path] = _changed_at(path)

    def _changed_files(self) -> list[str]:
        return [path for path, at in self._files.items() if _changed_at(path) != at]


def _load_command(command: Sequence[str]) -> None:
    """The module of a `manage.py` command, which every fork of it would load otherwise."""
    if len(command) > 2 and command[1].endswith("manage.py"):
        app = get_commands().get(command[2])
        if isinstance(app, str):
            importlib.import_module(f"{app}.management.commands.{command[2]}")


def _differ(one: Any, other: Any) -> bool:
    """Whether two values of a setting differ, or cannot be compared: a lazy one of the team's may name a URL that is not there."""
    try:
        return one is not other and bool(one != other)
    except Exception:  # whatever theirs raises
        return True


def serve(asked: socket.socket) -> list[str]:
    """Fork a child for each request until the other side closes. Returns in each child, with its command."""
    prepared = Prepared()
    while True:
        message, descriptors, _, _ = socket.recv_fds(asked, 2**20, 2)
        if not message:
            sys.exit()
        request = json.loads(message)
        prepared.load(request["command"], request["environment"])
        if not prepared.is_quiet():
            sys.exit("A thread or a database session was begun while modules were loaded: nothing can be forked here.")
        asked.send(b"loaded")
        if not asked.recv(1):
            sys.exit()
        # The child of a child that ends at once becomes a child of the process that asks (see `nursery`).
        if between := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            if os.waitpid(between, 0)[1]:
                sys.exit("A fork has failed.")
            continue
        between = os.getpid()
        if os.fork():
            os._exit(0)
        _begin(asked, between, descriptors, request)
        why = prepared.differences(request["environment"]) or prepared.adopt(request["environment"])
        command: list[str] = request["command"]
        if why:
            os.execve(command[0], command, request["environment"])  # noqa: S606  (the requested command)
        return command


def _begin(asked: socket.socket, between: int, descriptors: Sequence[int], request: Mapping[str, Any]) -> None:
    """Be a process of its own, a child of the one that asks."""
    while os.getppid() == between:
        time.sleep(0.0002)
    os.setsid()
    children.follow(request["parent"], signal.SIGTERM)
    asked.send(str(os.getpid()).encode())
    asked.close()
    for descriptor, place in zip(descriptors, (1, 2), strict=True):
        os.dup2(descriptor, place)
        os.close(descriptor)
    os.chdir(request["folder"])
    retitle(request["command"])


def retitle(command: Sequence[str]) -> None:
    """What `ps` shows of this process; it was started with an argument that leaves room for it."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5)
    room = end - start
    ctypes.memmove(start, "\0".join(command).encode()[: room - 1].ljust(room, b"\0"), room)


def run(command: Sequence[str]) -> None:
    """What Python does with this command line."""
    _, *words = command
    sys.orig_argv[:] = command  # a worker that lost its lease executes it
    if words[0] == "-m":
        sys.argv[:] = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = words
        sys.path[0] = str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def _files(modules: Iterable[Any]) -> set[str]:
    """The files of these modules, and their folders, where new ones may appear."""
    files = {str(path) for module in modules if (path := getattr(module, "__file__", None))}
    return files | {os.path.dirname(path) for path in files}


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0


if __name__ == "__main__":
    retitle([sys.executable, "-m", "config.stack.prepared"])
    run(serve(socket.socket(fileno=int(sys.argv[1]))))
