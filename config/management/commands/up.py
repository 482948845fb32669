"""The whole stack with one command: servers, migrations, agents, and every process under one supervisor."""

import http.client
import json
import os
import signal
import socket
import sys
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryFile
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError

from config.place import MANAGE
from config.stack import embedded, home
from config.stack.nursery import CAN_FORK, Nursery
from config.stack.supervisor import Program, Supervisor, environment_of_programs
from runs.management.json_output import JsonOutput

ANY = ("0.0.0.0", "::")  # noqa: S104  (addresses of all interfaces)
STDERR = 2


class Command(JsonOutput):
    help = "Run the whole stack: embedded servers unless DATABASE_URL / REDIS_URL name others, then every process."
    # A wrong setting is reported by the first command that is run below, once.
    requires_system_checks: list[str] = []
    is_process = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--demo", action="store_true", help="load the demo and print signed requests for it")
        parser.add_argument(
            "--paused", action="store_true", help="start with all queues paused, as after a restore: no run starts"
        )
        parser.add_argument(
            "--separate",
            action="store_true",
            help="start each program by its command line, as in production, and not as a fork of one that has loaded its modules",
        )

        parser.add_argument(
            "--bind", metavar="ADDRESS", help="address that the web process listens at, instead of WAKEFUL_BIND"
        )

    def handle(self, *, demo: bool, paused: bool, separate: bool, bind: str | None, **options: Any) -> None:
        settings.WAKEFUL_BIND = bind or settings.WAKEFUL_BIND
        # Line buffering also for files and pipes, so that lines of all processes appear in order.
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        # A SIGTERM while the servers start must stop them like a Ctrl-C.
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGHUP, _interrupt)
        try:
            self._check_port()
            with embedded.servers(
                settings.WAKEFUL_HOME,
                postgres=not home.given("DATABASE_URL"),
                valkey=not (home.given("REDIS_URL") or home.given("CELERY_BROKER_URL")),
                say=self.stdout.write,
            ) as servers:
                home.wait_for_leftovers(
                    settings.WAKEFUL_HOME, self.stdout.write, settings.WAKEFUL_SHUTDOWN_GRACE.total_seconds() + 5
                )
                running = {**servers.urls, **({"WAKEFUL_DEMO": "1"} if demo else {})}
                home.keep(settings.WAKEFUL_HOME, running)
                # Whether to run as root is the operator's decision; a warning at every start is noise.
                quiet = {"PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges"}
                env = environment_of_programs({**quiet, **os.environ, **running})
                can_fork = CAN_FORK and not separate
                with Nursery(env, folder=Path.cwd(), can_fork=can_fork, say=self.stdout.write) as nursery:
                    banner = self._prepare(nursery, env, demo=demo, paused=paused)
                    self._supervise(nursery, env, banner=banner)
        except embedded.EmbeddedError as error:
            raise CommandError(str(error)) from None
        except KeyboardInterrupt:
            self.stdout.write("Stopped before the processes were started.")

    def _supervise(self, nursery: Nursery, env: Mapping[str, str], *, banner: str) -> None:
        programs = _programs()
        supervisor = Supervisor(programs, env=env, spawn=nursery.spawn)
        awaited = {program.name for program in programs}
        greeted = False

        def greet_when_ready() -> None:
            nonlocal greeted
            if not greeted and _alive() >= awaited:
                supervisor.console.say("ready")
                self.stdout.write(f"\n{banner}\n\nCtrl-C stops everything.\n")
                greeted = True

        supervisor.run(
            each_second=greet_when_ready, on_start=lambda pids: home.remember_processes(settings.WAKEFUL_HOME, pids)
        )
        home.remember_processes(settings.WAKEFUL_HOME, {})
        self.stdout.write("All processes stopped.")

    def _prepare(self, nursery: Nursery, env: Mapping[str, str], *, demo: bool, paused: bool) -> str:
        """Run `prepare` in a process that has the servers' URLs; returns its output, how to log in."""
        self.stdout.write("Preparing the database …")
        command = [sys.executable, *MANAGE, "prepare"]
        command += [*(["--demo"] if demo else []), *(["--paused"] if paused else [])]
        with TemporaryFile() as output:
            process = nursery.start(command, env=env, output=output, errors=STDERR)
            try:
                code = process.wait()
            finally:
                process.kill()
            output.seek(0)
            said = output.read().decode()
        if code:
            raise CommandError(f"{said}`manage.py prepare` failed: the lines above show why.")
        return said.strip()

    def _check_port(self) -> None:
        with socket.socket(socket.AF_INET6 if ":" in settings.WAKEFUL_BIND else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((settings.WAKEFUL_BIND, settings.WAKEFUL_PORT))
            except OSError as error:
                raise CommandError(
                    f"Port {settings.WAKEFUL_PORT} cannot be used ({error.strerror}): is another stack or program on it? "
                    f"Stop that one, or choose another port: WAKEFUL_PORT={settings.WAKEFUL_PORT + 1}"
                ) from None


def _programs() -> list[Program]:
    """Named like their kinds, in the order of their start: web is last, so that accepted events are processed at once."""
    python = sys.executable
    manage = [python, *MANAGE]
    grace = settings.WAKEFUL_SHUTDOWN_GRACE.total_seconds()
    celery = [python, "-m", "celery", "--quiet", "-A", "config"]
    worker = [
        *celery,
        "worker",
        "--without-gossip",
        "--without-mingle",
        "--concurrency",
        str(settings.WAKEFUL_CONCURRENCY),
    ]
    granian = [python, "-m", "granian", "--interface", "rsgi", "--http", "1", "--no-ws", "--log-level", "error"]
    web = [
        *granian,
        "--host",
        settings.WAKEFUL_BIND,
        "--port",
        str(settings.WAKEFUL_PORT),
        "--workers-kill-timeout",
        "10",
    ]
    # Each granian worker listens on its own socket, so the port stays open while one of the two is alive.
    web = [*web, "--workers", "2", "--respawn-failed-workers"]
    return [
        Program(name="worker", command=worker, patience=grace + 10),
        Program(name="dispatcher", command=[*manage, "dispatcher"]),
        Program(name="beat", command=[*celery, "beat"]),
        Program(name="sources", command=[*manage, "sources"]),
        Program(name="caller", command=[*manage, "caller"], patience=grace + 10),
        Program(name="web", command=[*web, "--backpressure", "4096", "config.rsgi:application"]),
    ]


def _alive() -> set[str]:
    """The kinds of live processes by /health/ready; none while the web process does not answer."""
    host = "127.0.0.1" if settings.WAKEFUL_BIND in ANY else settings.WAKEFUL_BIND
    connection = http.client.HTTPConnection(host, settings.WAKEFUL_PORT, timeout=2)
    try:
        connection.request("GET", "/health/ready")
        return set(json.loads(connection.getresponse().read())["processes"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return set()
    finally:
        connection.close()


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
