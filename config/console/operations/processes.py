"""The Processes page: live processes, queues, problems and their remedies."""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from django.template.defaultfilters import pluralize
from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kernel.durations import in_words
from config.console.parts.gauge import Gauge
from config.console.parts.html import format_html, format_html_join
from config.console.parts.links import link, listing, page
from config.console.parts.sections import Notice, Section, Table
from config.health.problems import needed, problems
from config.health.situation import Process, Situation, read_situation
from runs.db.signs.oldest_transaction import OLDEST_TRANSACTION
from runs.models import Worker
from runs.queues.names import spelled
from runs.queues.state import SAMPLE, QueueState
from runs.sign import COUNTED, Problem

CODE = re.compile(r"`([^`]+)`")
KINDS = (
    Worker.Kind.WEB,
    Worker.Kind.BEAT,
    Worker.Kind.DISPATCHER,
    Worker.Kind.WORKER,
    Worker.Kind.SOURCES,
    Worker.Kind.CALLER,
)


def processes(request: HttpRequest) -> dict[str, Any]:
    """The context of the page, for users who may view processes."""
    if not request.user.has_perm("runs.view_worker"):
        raise PermissionDenied
    now = read_situation()
    wrong = problems(now)
    return {
        "title": "Processes",
        "notices": [*(notices(wrong) or [_all_well()]), *_versions(now)],
        "gauges": [*_kinds(now), *_waiting(now, {problem.name for problem in wrong})],
        "sections": [_queues(now, request), _alive(now), _stopped(now)],
    }


def notices(wrong: Sequence[Problem]) -> list[Section]:
    """One notice per problem, with its remedy."""
    return [Notice(level=problem.severity, text=_marked(problem.text), details=[_remedy(problem)]) for problem in wrong]


def _all_well() -> Notice:
    return Notice(text="All required processes are alive, and nothing is late.", level="good")


def _remedy(problem: Problem) -> SafeString:
    return format_html("<b>What to do:</b> {}", _marked(problem.remedy))


def _marked(text: str) -> SafeString:
    """`Code` between backticks as code."""
    parts = CODE.split(text)
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", part) if number % 2 else part,) for number, part in enumerate(parts))
    )


def _versions(now: Situation) -> list[Notice]:
    if len(now.versions) < 2:
        return []
    counted = ", ".join(
        f"{version} ({number} process{pluralize(number, 'es')})" for version, number in sorted(now.versions.items())
    )
    return [
        Notice(
            text=f"{len(now.versions)} versions run side by side: {counted}.",
            details=[
                "This is normal during an upgrade. When the new version works, restart the processes of the old one."
            ],
        )
    ]


# At a glance


def _kinds(now: Situation) -> list[Gauge]:
    return [_kind(now, kind) for kind in KINDS if kind in needed(now) or now.alive(kind)]


def _kind(now: Situation, kind: Worker.Kind) -> Gauge:
    there = now.alive(kind)
    children = sum(process.concurrency for process in there)
    label = kind.value.capitalize() + ("s" if kind is Worker.Kind.WORKER else "")
    if not there:
        age = now.unseen.get(kind)
        return Gauge(
            label=label, value="none", note=f"seen {_span(age)} ago" if age is not None else "never seen", level="bad"
        )
    seen = f"seen {_span(min(process.seen for process in there))} ago"
    return Gauge(
        label=label,
        value=f"{len(there)} alive",
        note=f"{children} children, {seen}" if children else seen,
        level="warning" if all(process.draining for process in there) else "good",
    )


def _waiting(now: Situation, wrong: set[str]) -> list[Gauge]:
    ready = [queue for queue in now.queues if queue.ready]
    lag = max((queue.oldest_seconds for queue in ready), default=None)
    oldest = next(iter(now[OLDEST_TRANSACTION]), None)
    return [
        Gauge(
            label="Events to dispatch",
            value=_number(now.undispatched, COUNTED),
            note=_oldest(now.undispatched_age),
            level="bad" if wrong & {"backlog", "no-dispatcher"} and now.undispatched else "",
            url=listing("triggers_event", state="undispatched"),
        ),
        Gauge(
            label="Runs ready",
            value=_number(sum(queue.ready for queue in ready), SAMPLE),
            note=_oldest(lag),
            level="warning" if any(name.startswith(("lag:", "homeless:")) for name in wrong) else "",
            url=listing("runs_run", place="ready"),
        ),
        Gauge(
            label="Outbox",
            value=_number(now.outbox, COUNTED),
            note=f"late by {_span(now.outbox_late)}" if (now.outbox_late or 0) > 1 else "",
            level="bad" if "outbox" in wrong else "warning" if "deliveries" in wrong else "",
        ),
        Gauge(
            label="Schedules late",
            value=str(now.schedules_late),
            note=f"by {_span(now.schedule_age)}" if now.schedules_late and now.schedule_age else "",
            level="bad" if now.schedules_late else "",
            url=listing("triggers_schedule"),
        ),
        Gauge(
            label="Oldest transaction",
            value=_span(oldest.age) if oldest else "unknown" if OLDEST_TRANSACTION in now.unread else "none",
            note=f"{oldest.application or oldest.user}, {oldest.state}" if oldest else "",
            level="warning" if "transaction" in wrong else "",
        ),
    ]


# Tables


def _queues(now: Situation, request: HttpRequest) -> Table:
    everything, *queues = sorted(now.queues, key=lambda queue: queue.name != "*")
    return Table(
        title="Queues of runs",
        headers=("Queue", "State", "Ready", "Oldest", "Running", "Limit", "Children", ""),
        rows=[
            ("all queues", _state(everything), "", "", "", "", "", _buttons(everything, request)),
            *[
                (
                    queue.name,
                    _state(queue, all_paused=everything.is_paused),
                    _number(queue.ready, SAMPLE),
                    _span(queue.oldest_seconds) if queue.ready else "–",
                    queue.running,
                    queue.max_running or "no limit",
                    queue.children or "none",
                    _buttons(queue, request),
                )
                for queue in queues
            ],
        ],
        empty="",
        note="A paused queue accepts runs but starts none. Running runs finish.",
    )


def _state(queue: QueueState, *, all_paused: bool = False) -> SafeString:
    if not queue.is_paused and all_paused:
        return SafeString('<span class="console-dot console-dot-warning">paused with all queues</span>')
    if not queue.is_paused:
        return SafeString('<span class="console-dot console-dot-good">open</span>')
    why = f": {queue.paused_reason}" if queue.paused_reason else ""
    return format_html(
        '<span class="console-dot console-dot-warning">paused</span> {} by {}{}',
        f"for {_span(queue.paused_seconds)}",
        queue.paused_by,
        why,
    )


def _buttons(queue: QueueState, request: HttpRequest) -> SafeString:
    buttons = []
    if request.user.has_perm("runs.pause_queue"):
        buttons.append(("resume", "Resume") if queue.is_paused else ("pause", "Pause"))
    if queue.name != "*" and request.user.has_perm("runs.change_queue"):
        buttons.append(("limit", "Limit"))
    name = "all queues" if queue.name == "*" else queue.name
    return format_html_join(
        " ",
        '<a class="console-button" href="{}" aria-label="{} {}">{}</a>',
        (
            (reverse(f"admin:runs_queue_{action}", args=[spelled(queue.name)]), label, name, label)
            for action, label in buttons
        ),
    )


def _alive(now: Situation) -> Table:
    there = [process for process in now.processes if process.stopped is None]
    return Table(
        title="Processes",
        headers=("Kind", "Process", "State", "Version", "Started", "Seen", "Children", "Queues", "Agents"),
        rows=[
            (
                process.kind,
                link(page("runs_worker", process.id), process.name),
                _life(process),
                process.version,
                f"{_span(process.started)} ago",
                f"{_span(process.seen)} ago",
                process.concurrency or "–",
                ", ".join(process.queues) or "–",
                _agents(process),
            )
            for process in sorted(there, key=lambda one: (KINDS.index(Worker.Kind(one.kind)), one.name))
        ],
        empty="No process is alive. `manage.py up` starts every process on one machine.",
        note="A process with work renews its row every few seconds, one without less often.",
    )


def _life(process: Process) -> SafeString:
    level, word = (
        ("bad", "unseen") if not process.alive else ("warning", "draining") if process.draining else ("good", "alive")
    )
    return format_html('<span class="console-dot console-dot-{}">{}</span>', level, word)


def _agents(process: Process) -> SafeString | str:
    if process.kind != Worker.Kind.WORKER:
        return "–"
    return format_html('<span title="{}">{}</span>', ", ".join(process.agents), len(process.agents))


def _stopped(now: Situation) -> Table:
    gone = [process for process in now.processes if process.stopped is not None]
    return Table(
        title="Stopped in the last day",
        headers=("Kind", "Process", "Version", "Ran for", "Stopped", "Reason"),
        rows=[
            (
                process.kind,
                link(page("runs_worker", process.id), process.name),
                process.version,
                _span(process.started - (process.stopped or 0)),
                f"{_span(process.stopped)} ago",
                _why(process),
            )
            for process in sorted(gone, key=lambda one: one.stopped or 0)
        ],
        empty="None.",
    )


def _why(process: Process) -> str:
    if process.stopped_reason == "unseen":
        runs = "; other workers took over its runs" if process.kind == Worker.Kind.WORKER else ""
        return f"vanished: killed, frozen or disconnected{runs}"
    return process.stopped_reason or "–"


# Words


def _span(seconds: float | None) -> str:
    return in_words(timedelta(seconds=round(seconds))) if seconds is not None and seconds >= 1 else "0 s"


def _oldest(age: float | None) -> str:
    return f"oldest {_span(age)}" if age is not None else ""


def _number(count: int, limit: int) -> str:
    return f"{count:,}" + ("+" if count >= limit else "")
