"""What waits for a person's decision: approvals and questions, uncertain runs, open incidents, and runs that wait for a signal. One list,
what is urgent first, with all that a decision needs."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from agents.kernel.redaction import shown, shown_json
from agents.kernel.reserved_types import SIGNAL
from config.console.parts.arguments import read
from config.console.parts.html import format_html
from config.console.parts.inboxes import first_to_expire, troubling_incidents, uncertain_runs
from config.console.parts.incident_words import acknowledged
from config.console.parts.links import link, listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.sections import Cell, Door
from config.console.runs.taint import TAINTED
from config.console.runs.uncertain import unproved_step_of, with_doubts
from runs.actions.readable_arguments import Argument, as_json
from runs.incidents.tell import failures_of, words_of
from runs.models import Approval, CoveredRun, Incident, Run, Wait

MOST = 30  # of each kind
LONGEST = 12_000  # characters of one, and more than the longest error
BEGINNING = 1_000  # characters of each text of a longer one
READ = 1_000  # waits for signals among which the oldest are found
SOON = timedelta(hours=4)
LARGE = ("wait__run__input", "wait__run__result", "wait__run__policy")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A button that decides. `shortcut`: the key that leads to it."""

    value: str
    label: str
    shortcut: str = ""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """`guard` identifies what the reader saw: a decision about something else is refused. `asks`: the text that goes with the decision.
    `arguments`: as JSON; `read`: as they are shown, if that is another way."""

    kind: str
    id: str
    label: str
    title: str
    url: str
    since: datetime | None
    until: datetime | None = None
    then: str = ""
    detail: str = ""
    arguments: str = ""
    read: Sequence[Argument] = ()
    warning: str = ""
    facts: Sequence[Cell] = ()
    guard: str = ""
    asks: str = ""
    choices: Sequence[Choice] = ()
    doors: Sequence[Door] = field(default_factory=list)

    @property
    def waited(self) -> Cell:
        return moment(self.since)

    @property
    def ends(self) -> Cell:
        return moment(self.until)

    @property
    def rank(self) -> tuple[int, float]:
        """What expires soon; then what is broken, the newest first; then the rest by its end, and by how long it waits."""
        at = self.since.timestamp() if self.since else 0
        if self.until and self.until < timezone.now() + SOON:
            return 0, self.until.timestamp()
        if self.kind in ("uncertain", "incident"):
            return 1, -at
        if self.kind == "signal":
            return 4, at
        return (2, self.until.timestamp()) if self.until else (3, at)


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """`more`: links to the lists that have more than is shown."""

    waiting: Sequence[Waiting]
    more: Sequence[Cell]

    @property
    def count(self) -> str:
        return f"{len(self.waiting)}{' or more' if self.more else ''}"


def what_waits(request: HttpRequest) -> Inbox:
    """Of the kinds that the user may see on their own pages."""
    found: list[Waiting] = []
    more: list[Cell] = []
    for model, items_of, title, url in (
        ("runs.approval", _approvals, "approvals", listing("runs_approval")),
        ("runs.run", _uncertain, "uncertain runs", listing("runs_run", status__exact="uncertain")),
        ("runs.incident", _incidents, "incidents", listing("runs_incident", status="failing")),
        ("runs.run", _signals, "waiting runs", listing("runs_run", status__exact="waiting")),
    ):
        if _may_see(request, model):
            items = items_of(request)
            found += [_in_sight(one) for one in items[:MOST]]
            more += [link(url, f"More {title}")] if len(items) > MOST else []
    return Inbox(waiting=sorted(found, key=lambda one: one.rank), more=more)


def _in_sight(item: Waiting) -> Waiting:
    """What is too long for the list is decided on its own page, where all of it stands."""
    # Before it is cut: a part of a secret would not be recognized.
    title, detail, arguments = str(shown(item.title)), str(shown(item.detail)), item.arguments
    if len(title) + len(detail) + len(arguments) <= LONGEST:
        return item
    facts = [*item.facts, link(item.url, "Too long for this list: read it and decide")]
    begun = replace(item, title=_begun(title), detail=_begun(detail), arguments=_begun(arguments), read=(), facts=facts)
    return replace(begun, asks="", choices=[], doors=[])


def _begun(text: str) -> str:
    return text if len(text) <= BEGINNING else f"{text[:BEGINNING]}…"


def _may_see(request: HttpRequest, model: str) -> bool:
    app, _, name = model.partition(".")
    return any(request.user.has_perm(f"{app}.{verb}_{name}") for verb in ("view", "change"))


def _approvals(request: HttpRequest) -> list[Waiting]:
    first = first_to_expire().values("pk")[: MOST + 1]
    found = Approval.objects.filter(wait__in=first).select_related("wait__run").defer(*LARGE)
    may = request.user.has_perm("runs.decide_approval")
    return [asked_by(one, may) for one in found.order_by(F("wait__due_at").asc(nulls_last=True), "wait_id")]


def asked_by(approval: Approval, may: bool) -> Waiting:
    """An approval with its buttons, for those who `may` decide."""
    wait, is_question = approval.wait, approval.is_question
    yes, no = ("Yes", "No") if is_question else ("Approve", "Deny")
    choices = [Choice(value="approve", label=yes, shortcut="a"), Choice(value="deny", label=no, shortcut="d")]
    answer = [Choice(value="answer", label="Send the answer")] if is_question else []
    can_edit = may and not is_question and approval.arguments is not None
    edit = reverse("admin:runs_approval_edit", args=[approval.pk])
    return Waiting(
        kind="approval",
        id=str(approval.pk),
        label="Question" if is_question else "Approval",
        title=f"{wait.run.agent}: {approval.question}",
        url=page("runs_approval", approval.pk),
        since=wait.created_at,
        until=wait.due_at,
        then=approval.get_on_expiry_display(),
        detail=approval.detail,
        arguments="" if is_question or approval.arguments is None else as_json(shown_json(approval.arguments)),
        read=() if is_question else read(approval.arguments),
        warning=TAINTED if wait.run.is_tainted else "",
        facts=[_of_run(wait.run), _seen(wait.run_id)],
        guard=approval.digest,
        asks=("Answer" if is_question else "Reason (optional)") if may else "",
        choices=[*answer, *choices] if may else [],
        doors=[Door(label="Edit and approve", url=edit, is_dialog=True)] if can_edit else [],
    )


def _of_run(run: Run) -> Cell:
    return format_html("{} run {}", run.agent, run_link(run.pk))


def _seen(run_id: Any) -> Cell:
    return link(f"{page('runs_run', run_id)}#conversation", "What the agent had seen")


def _uncertain(request: HttpRequest) -> list[Waiting]:
    runs = with_doubts(uncertain_runs().order_by("id").defer("input", "result", "policy", "fired"))[: MOST + 1]
    return [_doubt(one, request.user.has_perm("runs.resolve_run")) for one in runs]


def _doubt(run: Run, may: bool) -> Waiting:
    step = unproved_step_of(run)
    again = "It did not happen: do it" if step else "Try again"
    choices = [
        Choice(value="did_not_happen", label=again, shortcut="a"),
        Choice(value="fail", label="Let it fail", shortcut="d"),
    ]
    resolve = Door(label="It happened", url=reverse("admin:runs_run_resolve_run", args=[run.pk]), is_dialog=True)
    key = [format_html("Idempotency key <code>{}</code>", step.idempotency_key)] if step else []
    return Waiting(
        kind="uncertain",
        id=str(run.pk),
        label="Uncertain run",
        title=f"{run.agent}: did {step.key} happen?" if step else f"{run.agent}: its journal does not fit today's code",
        url=page("runs_run", run.pk),
        since=run.parked_at,  # type: ignore[attr-defined]
        detail=run.status_reason,
        arguments=as_json(shown_json(step.arguments)) if step and step.arguments is not None else "",
        read=read(step.arguments) if step else (),
        facts=[_of_run(run), *key, _seen(run.pk)],
        guard=str(run.epoch),
        choices=choices if may else [],
        doors=[resolve] if may and step else [],
    )


def _incidents(request: HttpRequest) -> list[Waiting]:
    last = CoveredRun.objects.filter(incident=OuterRef("pk")).order_by("-id").values("id")[:1]
    found: QuerySet[Incident] = troubling_incidents().order_by("-id").annotate(last_covered=Subquery(last))
    return [_broken(one, request) for one in found[: MOST + 1]]


def _broken(incident: Incident, request: HttpRequest) -> Waiting:
    thing, _ = words_of(incident)
    covered = incident.last_covered  # type: ignore[attr-defined]
    choices = []
    if covered and request.user.has_perm("runs.requeue_run"):
        choices.append(Choice(value="requeue", label="Requeue its failed runs", shortcut="a"))
    if request.user.has_perm("runs.acknowledge_incident") and not incident.acknowledged_at:
        choices.append(Choice(value="acknowledge", label="Acknowledge"))
    if request.user.has_perm("runs.mute_incident"):
        choices.append(Choice(value="mute", label="Mute until the next version"))
    if request.user.has_perm("runs.close_incident"):
        choices.append(Choice(value="close", label="Close", shortcut="d"))
    by = acknowledged(incident)
    known = [format_html("acknowledged {}", by)] if by else []
    run = [format_html("last run {}", run_link(incident.last_run_id))] if incident.last_run_id else []
    return Waiting(
        kind="incident",
        id=str(incident.pk),
        label="Incident",
        title=f"{thing}: {failures_of(incident, incident.in_a_row)} since the last success",
        url=page("runs_incident", incident.pk),
        since=incident.opened_at,
        detail=incident.cause,
        facts=[*known, *run, format_html("last failure {}", moment(incident.last_at))],
        guard=str(covered or 0),
        choices=choices,
    )


def _signals(request: HttpRequest) -> list[Waiting]:
    waits = Wait.objects.filter(status=Wait.Status.OPEN, kind=Wait.Kind.EVENT, event_type=SIGNAL)
    # In the order of the index: a million that wait cost as much as READ.
    some = waits.order_by("match_shape", "match_hash").values("pk")[:READ]
    oldest = Wait.objects.filter(pk__in=some).order_by("id").select_related("run")
    found = oldest.defer("run__input", "run__result", "run__policy")[: MOST + 1]
    may = request.user.has_perm("runs.signal_run")
    return [
        Waiting(
            kind="signal",
            id=str(wait.run_id),
            label="Signal",
            title=f"{wait.run.agent} waits for signal {(wait.match or {}).get('name', '')}",
            url=page("runs_run", wait.run_id),
            since=wait.created_at,
            until=wait.due_at,
            then="goes on without it",
            facts=[_of_run(wait.run)],
            doors=[Door(label="Signal", url=reverse("admin:runs_run_signal_run", args=[wait.run_id]), is_dialog=True)]
            if may
            else [],
        )
        for wait in found
    ]
