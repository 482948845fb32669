"""The lines that a body writes to `run.log`, kept until a commit of its run takes them along.

They are cleaned like all that is stored, and bounded: a commit takes at most LINES and BYTES, the rest is counted. What the worker
writes to its own log stays as it is.
"""

import json
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import structlog
from structlog.typing import EventDict

from agents.kernel.redaction import stored

LINES, BYTES = 200, 16_384  # of one commit
LONGEST, MOST = 2_000, 5_000  # characters and bytes of each part of a line, so that any line fits into a commit
CUT = "… (cut)"
OWN = ("event", "agent", "run", "exc_info", "stack_info", "positional_args")


@dataclass(frozen=True, kw_only=True)
class LogChunk:
    """Lines of one commit. `number`: how many came before it in its claim. `content`: JSON, of each line time, level, text and values."""

    number: int
    count: int
    size: int  # bytes
    dropped: int
    content: str


class LogLines:
    """The lines of one claim. While `is_replayed`, a durable body writes again what it wrote before: that is not kept twice."""

    def __init__(self, *, is_kept: bool = True, is_replayed: Callable[[], bool] = lambda: False) -> None:
        self._is_kept = is_kept
        self._is_replayed = is_replayed
        self._lines: list[Sequence[Any]] = []
        self._bytes = 0
        self._dropped = 0
        self._taken = 0

    def logger(self, name: str, **bound: Any) -> Any:
        processors = list(structlog.get_config()["processors"])
        after_level = 1 if processors[:1] == [structlog.stdlib.filter_by_level] else 0
        processors.insert(after_level, self._keep)
        return structlog.wrap_logger(None, processors=processors, logger_factory_args=(name,), **bound)

    def chunk(self) -> LogChunk | None:
        """What the next commit takes along; call `forget` once it is committed."""
        lines, dropped = list(self._lines), self._dropped
        if not lines and not dropped:
            return None
        size = sum(map(_size, lines))
        return LogChunk(number=self._taken, count=len(lines), size=size, dropped=dropped, content=json.dumps(lines))

    def forget(self, chunk: LogChunk) -> None:
        del self._lines[: chunk.count]
        self._dropped -= chunk.dropped
        self._taken += chunk.count + chunk.dropped
        self._bytes = sum(_size(line) for line in self._lines)

    def _keep(self, logger: Any, level: str, event: EventDict) -> EventDict:
        if self._is_kept and not self._is_replayed():
            line = _line(level, event)
            if len(self._lines) < LINES and self._bytes + _size(line) <= BYTES:
                self._lines.append(line)
                self._bytes += _size(line)
            else:
                self._dropped += 1
        return event


def _line(level: str, event: EventDict) -> Sequence[Any]:
    text = _text(event.get("event", ""))
    if arguments := event.get("positional_args"):
        try:
            text %= arguments
        except (TypeError, ValueError, KeyError):
            text = f"{text} {_text(arguments)}"
    values = " ".join(f"{key}={_text(value)}" for key, value in event.items() if key not in OWN)
    error = _error(event.get("exc_info"))
    # Cut after it is cleaned: a part of a secret would not be recognized.
    cleaned = [_beginning(_clean(part)) for part in (text, values)] + [_end(_clean(error))]
    return [datetime.now(UTC).isoformat(timespec="milliseconds"), level, *cleaned]


def _text(value: Any) -> str:
    """Never an error: a line of a log must not fail a run."""
    try:
        return value if isinstance(value, str) else repr(value)
    except Exception:
        return f"<{type(value).__name__}>"


def _clean(text: str) -> str:
    """Without secrets, NUL and unpaired surrogates, which PostgreSQL cannot store."""
    return stored(text).encode(errors="replace").decode().replace("\x00", "\ufffd")


def _beginning(text: str) -> str:
    kept = text[:LONGEST].encode()[:MOST].decode(errors="ignore")
    return text if kept == text else kept + CUT


def _end(text: str) -> str:
    kept = text[-LONGEST:].encode()[-MOST:].decode(errors="ignore")
    return text if kept == text else CUT + kept


def _error(given: Any) -> str:
    if given is True:
        given = sys.exc_info()
    error = given[1] if isinstance(given, tuple) else given
    return "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else ""


def _size(line: Sequence[Any]) -> int:
    return sum(len(part.encode()) for part in line)
