"""`manage.py alive KIND`: whether the processes of a kind on this host are alive, as an exit code and one sentence.

manage.py calls it before Django is loaded, which would cost twenty times as much as the answer.
"""

import os
import socket
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NoReturn

from runs.processes import pulse
from runs.processes.pulse import Beat

KINDS = ("worker", "beat", "dispatcher", "sources", "caller")
SERVERS = {"web": 8000, "ingest": 8001}  # and their ports
ANY = ("", "0.0.0.0", "::", "[::]")  # noqa: S104  (addresses that are not called)
LIVE = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
ANSWER = 5.0  # seconds
HELP = "Whether the processes of a kind on this host are alive: exit code 0 or 1, and one sentence. For probes of containers."


@dataclass(frozen=True, kw_only=True)
class Verdict:
    kind: str
    alive: bool
    reason: str
    processes: list[Beat]


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("kind", choices=(*KINDS, *SERVERS))
    parser.add_argument("--pid", type=int, help="of several processes of the kind, this one; without it, all of them")
    parser.add_argument(
        "--within",
        type=_seconds,
        metavar="SECONDS",
        help="the time within which its loop must have come round; by default what the process says, 2 minutes or more",
    )
    parser.add_argument("--port", type=int, help="of web or ingest, if it is not WAKEFUL_PORT, or 8001 for ingest")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")


def _seconds(text: str) -> float:
    try:
        return float(text.removesuffix("s"))
    except ValueError:
        raise ArgumentTypeError("must be a number of seconds") from None


def main(words: Sequence[str]) -> int:
    """Print the verdict; the exit code."""
    parser = _Parser(prog="manage.py alive", description=HELP)
    add_arguments(parser)
    given = parser.parse_args(words)
    verdict = look(given.kind, pid=given.pid, within=given.within, port=given.port)
    text = _as_json(asdict(verdict)) if given.as_json else verdict.reason
    print(text, file=sys.stdout if verdict.alive or given.as_json else sys.stderr)  # noqa: T201  (it is a command)
    return 0 if verdict.alive else 1


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        if "--json" in sys.argv:
            print(_as_json({"error": message}))  # noqa: T201  (as of every command: runs.management.json_output)
        super().error(message)


def _as_json(document: Mapping[str, Any]) -> str:
    import json  # a fifth of what the probe costs, and few ask for it

    return json.dumps(document)


def look(kind: str, *, pid: int | None, within: float | None, port: int | None) -> Verdict:
    return of_server(kind, port) if kind in SERVERS else of_loop(kind, list(pulse.read(kind)), pid, within)


def of_loop(kind: str, beats: Sequence[Beat], pid: int | None, within: float | None) -> Verdict:
    """By the pulses that the loops of the processes have left."""
    beats = [beat for beat in beats if pid in (None, beat.pid)]
    says = partial(Verdict, kind=kind, processes=beats)
    if not beats:
        which = kind if pid is None else f"{kind} with pid {pid}"
        return says(alive=False, reason=f"No {which} lives here: there is no pulse of it in {pulse.folder()}.")
    slowest = max(beats, key=lambda beat: beat.ago)
    last = f"the loop of {kind} {slowest.pid} came round {slowest.ago:.1f} s ago"
    if slowest.ago <= (slowest.limit if within is None else within):
        return says(alive=True, reason=f"Alive: {last}.")
    # A statement may hang for as long as a database that is frozen, or cut off. A restarted process would hang as well, and the
    # work of the old one would be lost: a worker's running steps would end in the middle.
    if not database_answers():
        return says(alive=True, reason=f"Alive, as the database does not answer, for which it may be waiting: {last}.")
    return says(alive=False, reason=f"It hangs: {last}, and the database answers.")


def database_answers() -> bool:
    """Whether it takes a connection within a few seconds. It loads the settings, which is why it is only called in doubt."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    try:
        from django.db import connection

        connection.ensure_connection()
        connection.close()
    except Exception:
        # Any: a wrong setting does not mean that the process hangs, either.
        return False
    return True


def of_server(kind: str, port: int | None) -> Verdict:
    """By an answer of its event loop, which needs neither the database nor a free thread."""
    given = os.environ.get("WAKEFUL_BIND", "")
    host = "127.0.0.1" if given in ANY else given.strip("[]")
    port = port or (SERVERS[kind] if kind == "ingest" else int(os.environ.get("WAKEFUL_PORT") or SERVERS[kind]))
    says = partial(Verdict, kind=kind, processes=[])
    try:
        status = _status(host, port)
    except OSError as error:
        return says(alive=False, reason=f"No answer of {kind} at {host}:{port}: {error}.")
    if status == "200":
        return says(alive=True, reason=f"Alive: {kind} answers at {host}:{port}.")
    return says(
        alive=False, reason=f"What listens at {host}:{port} is no {kind} that is alive: status {status or 'unknown'}."
    )


def _status(host: str, port: int) -> str:
    with socket.create_connection((host, port), timeout=ANSWER) as connection:
        connection.settimeout(ANSWER)
        connection.sendall(LIVE)
        line = connection.recv(64).partition(b"\r\n")[0].decode(errors="replace")
    with suppress(ValueError):
        _, status, *_ = line.split(" ")
        return status
    return ""
