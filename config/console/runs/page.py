"""The page of one run: its state and the reason for it, its journal, its causes and effects."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from agents import telemetry
from config.console.access.audit import entries_of
from config.console.parts.html import format_html
from config.console.parts.links import agent_link, event_link, joined, link, listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.report_lines import as_lines
from config.console.parts.sections import Facts, Notice, Section, Table, Text, pretty
from config.console.runs.causal_tree import causal_tree
from config.console.runs.failed_children import failed_children
from config.console.runs.input_and_result import input_and_result
from config.console.runs.left_request import request_of
from config.console.runs.live import live
from config.console.runs.log_section import log_of
from config.console.runs.taint import taint_of
from config.console.runs.transcript import conversation
from config.console.runs.uncertain import notice_of_uncertain
from config.console.runs.waits import open_wait_of, waiting_for
from config.console.runs.waterfall import waterfall
from config.console.runs.words import (
    LEVELS,
    duration_of,
    first_line,
    has_worker,
    in_words,
    is_blocked,
    took,
    trigger_of,
)
from runs.models import NIL, Approval, Attempt, CoveredRun, Notification, ProcessedEvent, Run, Wait
from runs.models.policy import REPORTS
from runs.states import LIVE, REQUEUEABLE, RunStatus
from triggers.models import Event

SHOWN = 20  # attempts, events and notifications of one run
CLAIMS = "A worker claims a run to execute it. Attempts are counted since the last step or wait that was completed."
CHILDREN = 5  # awaited children linked in the notice


def sections_of(run: Run, request: HttpRequest) -> list[Section]:
    attempts = _latest_attempts(run)
    events = list(Event.objects.filter(pk__in=run.event_ids[:SHOWN]).select_related("source").defer("data", "body"))
    sections: list[Section] = [live(run, request, lambda: changing_sections_of(run, request))]
    sections += [_events(run, events), causal_tree(run), *_notifications(run)]
    approvals = Approval.objects.filter(wait__run=run).order_by("-id").values_list("id", flat=True)[:SHOWN]
    sections.append(entries_of("run", run.pk, parts={"approval": approvals}))
    sections += [
        Text(title=f"Traceback of attempt {earlier.number}", text=earlier.traceback, folded=True)
        for earlier in attempts[1:]
        if earlier.traceback
    ]
    if run.fired is not None:
        sections.append(Text(title="Answer of its gate", text=pretty(run.fired), folded=True))
    sections.append(Text(title="Policy at dispatch", text=pretty(run.policy), folded=True))
    return sections


def changing_sections_of(run: Run, request: HttpRequest) -> list[Section]:
    """Those that may change while the run is live."""
    attempts = _latest_attempts(run)
    sections: list[Section] = [
        *_notices(run),
        *failed_children([run.pk]),
        input_and_result(run, attempts, request),
        *log_of(run),
    ]
    return [*sections, _facts(run), *conversation(run, request), *waterfall(run, request), _attempts(attempts)]


def _latest_attempts(run: Run) -> list[Attempt]:
    return list(run.attempts.select_related("worker").order_by("-epoch")[: SHOWN + 1])


def _notices(run: Run) -> list[Section]:
    match run.status:
        case RunStatus.UNCERTAIN:
            return notice_of_uncertain(run)
        case RunStatus.WAITING if wait := open_wait_of(run):
            return [_waiting(run, wait)]
    level = LEVELS.get(RunStatus(run.status), "info")
    details: list[Any] = []
    if is_blocked(run):
        level = "warning"
        details = [format_html("Its key is held by {}.", run_link(holder)) for holder in _holders(run)]
    if run.status == RunStatus.QUEUED and run.ready_at and not has_worker(run):
        level = "bad"
        details = ["Start a worker that has this agent's code: celery -A config worker. See Processes."]
    if (
        run.status == RunStatus.FAILED
        and ProcessedEvent.objects.filter(run_id=run.pk, event_id__in=run.event_ids).exists()
    ):
        details = ["Its event has been processed, so it cannot be requeued. Replay the event instead."]
    if run.status in REQUEUEABLE and (fork := Run.objects.filter(forked_from_id=run.pk).order_by("id").last()):
        details = [format_html("It was forked. {} continues its work.", run_link(fork.pk))]
    return [Notice(text=in_words(run), level=level, details=details)]


def _waiting(run: Run, wait: Wait) -> Notice:
    match wait.kind:
        case Wait.Kind.APPROVAL:
            details = [link(page("runs_approval", wait.approval.pk), "Open the approval")]
            return Notice(text=waiting_for(wait), level="warning", details=details)
        case Wait.Kind.CHILDREN:
            live = Run.objects.live().filter(parent_id=wait.run_id, id__among=wait.children)
            still, first = live.count(), live.order_by("id").values_list("id", "agent")[:CHILDREN]
            links = [run_link(id, agent) for id, agent in first]
            more = [f"{still - len(links)} more"] if still > len(links) else []
            details = [joined([*links, *more])] if links else []
            return Notice(text=waiting_for(wait, still_running=still), details=details)
        case Wait.Kind.BUDGET:
            reason = (wait.asked or {}).get("reason", "")
            details = [reason, link(listing("runs_budget"), "Raise a cap, or allow more once")]
            return Notice(text=waiting_for(wait), level="warning", details=details)
        case Wait.Kind.SESSION:
            reason = (wait.asked or {}).get("reason", "")
            return Notice(
                text=waiting_for(wait), details=[reason, link(listing("agents_session"), "Open the sessions")]
            )
        case Wait.Kind.MODEL:
            return Notice(text=waiting_for(wait), details=request_of(run, wait))
    return Notice(text=waiting_for(wait), details=["Meanwhile it occupies no process and no place in a queue."])


def _holders(run: Run) -> Iterable[UUID]:
    if run.key is None:
        return []
    return Run.objects.filter(key=run.key, slot__isnull=False, status__in=LIVE).values_list("id", flat=True)[:3]


def _facts(run: Run) -> Facts:
    retries = run.policy.get("retries")
    events = Event.objects.filter(pk__in=run.event_ids[:SHOWN], cause_run_id__isnull=False)
    causes = [run_link(id) for id in events.values_list("cause_run_id", flat=True) if id]
    return Facts(
        rows=[
            ("Run", run.pk),
            (
                "Agent",
                format_html("{} ({})", agent_link(run.agent), run.version) if run.version else agent_link(run.agent),
            ),
            ("Began on version", run.begun_version if run.begun_version != run.version else ""),
            ("Trigger", trigger_of(run)),
            # Counted since the last progress; the table of claims shows all of them.
            (
                "Attempt",
                (f"{run.attempt} of {retries + 1}" if isinstance(retries, int) else run.attempt)
                if run.attempt and run.status in LIVE
                else "",
            ),
            ("Created", moment(run.created_at)),
            ("Due", run.due_at and moment(run.due_at)),
            ("Ready since", run.ready_at and moment(run.ready_at)),
            ("First started", run.started_at and moment(run.started_at)),
            ("Finished", run.finished_at and moment(run.finished_at)),
            ("Time from first start to end" if run.finished_at else "Time since its first start", duration_of(run)),
            ("Payload removed", run.payload_removed_at and moment(run.payload_removed_at)),
            ("Deadline", moment(run.deadline_at) if run.deadline_at and run.status == RunStatus.RUNNING else ""),
            ("Cancel requested", run.cancel_requested_at and moment(run.cancel_requested_at)),
            ("Queue and priority", f"{run.queue}, {run.priority}"),
            ("Key", run.key and run.key.partition(":")[2]),
            ("Child of", run.parent_id and run_link(run.parent_id)),
            ("Fork of", run.forked_from_id and run_link(run.forked_from_id)),
            ("Incident", _incident_link(run)),
            (
                "Compare",
                run.trigger and link(reverse("admin:runs_run_compare", args=[run.pk]), "with the last success"),
            ),
            ("Caused by run", joined(causes) if causes else ""),
            ("First event of the chain", event_link(run.root_id) if run.depth else ""),
            ("Depth in the chain", run.depth or ""),
            ("Trace", run.root_id.hex if telemetry.is_on() else ""),
            ("Tainted", taint_of(run)),
            ("Reports", as_lines(run.policy.get(REPORTS) or []).replace("\n", " · ")),
            ("Replay", "" if str(run.replay_id) == NIL else run.replay_id),
        ]
    )


def _incident_link(run: Run) -> SafeString | str:
    covered = CoveredRun.objects.filter(run_id=run.pk).values_list("incident_id", "incident__cause").first()
    return link(page("runs_incident", covered[0]), covered[1]) if covered else ""


def _attempts(attempts: list[Attempt]) -> Table:
    return Table(
        title="Claims",
        headers=("Claim", "Attempt", "Outcome", "Started", "Took", "Worker", "Error"),
        rows=[
            (
                one.epoch,
                one.number,
                one.outcome,
                moment(one.started_at),
                took(one.started_at, one.ended_at),
                f"{one.worker.host}:{one.pid}" if one.worker else "–",
                first_line(one.error),
            )
            for one in reversed(attempts[:SHOWN])
        ],
        empty="No attempt has ended yet.",
        note=f"The latest {SHOWN}; earlier ones are not shown."
        if len(attempts) > SHOWN
        else CLAIMS
        if attempts
        else "",
    )


def _events(run: Run, events: list[Event]) -> Table:
    more = len(run.event_ids) - len(events)
    return Table(
        title="Woken by",
        headers=("Event", "Type", "Source", "Subject", "Received"),
        rows=[
            (event_link(event.pk), event.type, event.source.slug, event.subject or "–", moment(event.received_at))
            for event in events
        ],
        empty="Its events have been deleted." if run.event_ids else "No event: another run spawned it.",
        note=f"{more} more are not shown." if events and more > 0 else "",
    )


def _notifications(run: Run) -> list[Section]:
    notes = Notification.objects.filter(run_id=run.pk, created_at__gte=run.created_at).order_by("created_at")[:SHOWN]
    told = [(moment(one.created_at), one.urgency, one.text) for one in notes]
    if not told:
        return []
    note = f"The first {SHOWN}." if len(told) == SHOWN else ""
    return [Table(title="Notifications", headers=("When", "Urgency", "Text"), rows=told, empty="", note=note)]
