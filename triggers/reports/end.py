"""An end of a run, as the message of the outbox has it, and in words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from agents.kernel.durations import in_words
from agents.kernel.redaction import redacted
from agents.kernel.report import Report
from runs.incidents.tell import said
from runs.models import Notification
from runs.states import RunStatus

LONGEST = 500  # characters of a result in words
URGENT = 2  # the priority up to which a failure is urgent, as its incident is
AS_THEY_ARE = (
    "epoch", "agent", "trigger", "priority", "status", "reason", "error", "attempt", "result", "result_bytes", "depth", "chain",
    "is_tainted",
)  # fmt: skip
Urgency = Notification.Urgency


@dataclass(frozen=True, kw_only=True)
class End:
    """The end of a run; `run` None: no run came of the wake."""

    reports: Sequence[Report]
    run: UUID | None
    epoch: int
    agent: str
    trigger: str
    priority: int
    status: str
    reason: str
    error: str
    attempt: int
    result: Any
    result_bytes: int | None
    started_at: datetime | None
    finished_at: datetime | None
    root: UUID
    event: UUID | None
    depth: int
    chain: Sequence[str]
    is_tainted: bool

    @property
    def name(self) -> str:
        return self.trigger or self.agent

    @property
    def has_succeeded(self) -> bool:
        return self.status == RunStatus.SUCCEEDED

    @property
    def outcome(self) -> str:
        """The end in one phrase, the same for many runs."""
        match self.status:
            case RunStatus.SUCCEEDED:
                return "succeeded"
            case RunStatus.FAILED:
                return "failed"
            case RunStatus.CANCELLED:
                return "was cancelled"
            case _:
                return "did not start"

    @property
    def text(self) -> str:
        """The end in words: what ended, how, and the result or the reason."""
        took = ""
        if self.has_succeeded and self.started_at and self.finished_at:
            took = f" after {in_words(self.finished_at - self.started_at)}"
        if self.status == RunStatus.FAILED and self.attempt > 1:
            took = f" after {self.attempt} attempts"
        why = self._result if self.has_succeeded else said(self.error) or self.reason
        return redacted(f"{self.name} {self.outcome}{took}{f': {why}' if why else ''}")

    @property
    def _result(self) -> str:
        if self.result is None:
            is_large = self.result_bytes is not None and self.result_bytes > len("null")
            return f"its result has {self.result_bytes:,} bytes; its page shows it" if is_large else ""
        return _in_words(self.result)

    def urgency(self, report: Report) -> Urgency:
        if self.status == RunStatus.FAILED and self.priority <= URGENT:
            return Urgency.HIGH
        return Urgency.LOW if self.has_succeeded and not report.by else Urgency.NORMAL


def end_of(payload: Mapping[str, Any]) -> End:
    """Read a message. ValueError: another version has written it."""
    read: dict[str, Any] = {name: payload[name] for name in AS_THEY_ARE}
    read |= {name: payload[name] and datetime.fromisoformat(payload[name]) for name in ("started_at", "finished_at")}
    read |= {name: payload[name] and UUID(payload[name]) for name in ("run", "root", "event")}
    return End(**read, reports=list(dict.fromkeys(map(Report.load, payload["reports"]))))


def _in_words(result: Any) -> str:
    if isinstance(result, str):
        text = result.strip()
    elif isinstance(result, dict):
        text = ", ".join(f"{name}: {_short(value)}" for name, value in result.items())
    else:
        text = _short(result)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
