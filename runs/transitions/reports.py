"""Reports of ends: an outbox topic. The message of a run that ends is written by the database (`0012_report_of_an_end`), in the
transaction of the end; here is the one of a wake that a person asked a report of, and that became no run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runs.db.nudge import nudge_dispatcher
from runs.models import OutboxMessage

REPORT = "run.report"  # the outbox topic
NOT_STARTED = "not_started"  # the status of an end without a run

Asked = Sequence[Mapping[str, Any]]  # reports as stored


def asked_by_people(reports: Asked) -> list[Mapping[str, Any]]:
    """The reports that a person or program asked for when it started this one run."""
    return [report for report in reports if report.get("by")]


@dataclass(frozen=True, kw_only=True)
class Unstarted:
    """A wake that became no run, and the reason."""

    reports: Asked
    agent: str
    trigger: str
    event_id: UUID
    root_id: UUID
    reason: str
    priority: int = 5
    depth: int = 0
    chain: Sequence[str] = ()
    is_tainted: bool = False  # the reason may quote untrusted data


def report_unstarted(wake: Unstarted) -> None:
    """Write the message, in the caller's transaction, if a person asked for a report."""
    reports = [report for report in asked_by_people(wake.reports) if report.get("on") != "success"]
    if not reports:
        return
    payload = {
        "reports": reports,
        "run": None,
        "epoch": 0,
        "agent": wake.agent,
        "trigger": wake.trigger,
        "priority": wake.priority,
        "status": NOT_STARTED,
        "reason": wake.reason,
        "error": "",
        "attempt": 0,
        "result": None,
        "result_bytes": None,
        "started_at": None,
        "finished_at": None,
        "root": str(wake.root_id),
        "event": str(wake.event_id),
        "depth": wake.depth,
        "chain": list(wake.chain),
        "is_tainted": wake.is_tainted,
    }
    OutboxMessage.objects.create(topic=REPORT, key=str(wake.event_id), payload=payload)
    nudge_dispatcher()
