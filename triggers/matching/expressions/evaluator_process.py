"""The evaluator process: evaluates expressions on events for the process that started it.

`evaluator` starts it, in isolation (`runs.processes.isolation`). The kernel ends it when an expression exceeds its processor time, or
the process its memory. It exits when its parent closes the socket.
"""

import contextlib
import json
import signal
import socket
import time
from dataclasses import asdict
from datetime import datetime
from typing import Any

from runs.api.strict_json import MAX_DEPTH, Unreadable, require_shallow
from runs.processes.frames import receive, send
from triggers.matching.expressions.cel import MAX_LENGTH, MISSING, Question, answer, context_of, field_at, load_data

HELLO = b"ready"
TOO_DEEP = f"it is nested deeper than {MAX_DEPTH} levels"


def main(descriptor: int) -> None:
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # the default action ends the process, whichever thread holds the GIL
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    connection = socket.socket(fileno=descriptor)
    with contextlib.suppress(ConnectionError):
        send(connection, HELLO)
        while (request := receive(connection)) is not None:
            data = receive(connection)
            serve(connection, json.loads(request), data or b"null")


def serve(connection: socket.socket, request: dict[str, Any], data: bytes) -> None:
    """Send each answer at once, so that earlier answers count even if the process ends."""
    began, seconds, total = time.process_time(), request["seconds"], request["total"]
    signal.setitimer(signal.ITIMER_PROF, max(seconds, total))
    event, without_data = load(request["event"], data, request["without_data"])
    context = context_of(event)
    send(connection, json.dumps([scalar_at(event["data"], path) for path in request["paths"]]).encode())
    for filter, key, input, parts in request["questions"]:
        answered = None
        if time.process_time() - began < total:
            signal.setitimer(signal.ITIMER_PROF, seconds)
            question = Question(filter=filter, key=key, input=input, parts=parts)
            answered = asdict(answer(question, lambda: context, without_data=without_data))
            signal.setitimer(signal.ITIMER_PROF, 0)
        send(connection, json.dumps([answered, time.process_time() - began]).encode())
        if answered is None:
            return


def scalar_at(data: Any, path: list[str]) -> list[Any]:
    """Empty: there is no such field. None stands for values that no literal equals."""
    if (value := field_at(data, path[1:])) is MISSING:
        return []
    is_scalar = isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= MAX_LENGTH)
    return [value if is_scalar else None]


def load(envelope: dict[str, Any], data: bytes, without_data: str) -> tuple[dict[str, Any], str]:
    """The event for expressions, and the reason if they may not read its data."""
    value = None
    try:
        value = load_data(data)
        require_shallow(value)
    except (RecursionError, Unreadable):
        value, without_data = None, TOO_DEEP
    return {**envelope, "time": datetime.fromisoformat(envelope["time"]), "data": value}, without_data
