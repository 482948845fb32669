"""What waits for a person: approvals, uncertain runs, and messages that are held."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from agents.kernel.redaction import shown_json
from config.console.home.causes import Act
from config.console.parts.arguments import read
from config.console.parts.html import shortened
from config.console.parts.inboxes import first_to_expire, pending_approvals, uncertain_runs
from config.console.parts.links import listing, page, run_link
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from runs.actions.readable_arguments import Argument, as_json
from runs.models import Approval, Delivery, Run, Wait

SHOWN = 5
COUNTED = 100
HELD = 1_000
SHORT, LINES = 400, 12  # characters of a question and its arguments, and lines of these, that are read in a row


@dataclass(frozen=True, kw_only=True)
class Asked:
    """An approval. It is decided here if it can be read here as a whole, and its run has seen nothing that strangers wrote."""

    id: str
    agent: str
    run: Cell
    url: str
    question: str
    arguments: str
    read: Sequence[Argument]
    until: datetime | None
    is_tainted: bool
    acts: Sequence[Act]
    word: str

    @property
    def until_shown(self) -> Cell:
        return appointment(self.until) if self.until else ""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    approvals: Sequence[Asked]
    approvals_count: int
    uncertain: Sequence[tuple[str, Cell]]
    uncertain_count: int
    held: int
    held_until: datetime | None
    held_url: str

    @property
    def decisions(self) -> int:
        return self.approvals_count + self.uncertain_count

    @property
    def is_cut(self) -> bool:
        return max(self.approvals_count, self.uncertain_count) >= COUNTED

    @property
    def approvals_shown(self) -> str:
        return _up_to(self.approvals_count, COUNTED)

    @property
    def uncertain_shown(self) -> str:
        return _up_to(self.uncertain_count, COUNTED)

    @property
    def held_shown(self) -> str:
        return _up_to(self.held, HELD)

    @property
    def held_until_shown(self) -> Cell:
        return appointment(self.held_until) if self.held_until else ""


def waiting(*, may_see_approvals: bool, may_decide: bool, may_see_mail: bool) -> Waiting:
    asked = _approvals(may_decide) if may_see_approvals else []
    uncertain = uncertain_runs().only("id", "agent").order_by("id")
    rows = [(run.agent, run_link(run.pk, "Answer")) for run in uncertain[:SHOWN]]
    held = _held() if may_see_mail else []
    return Waiting(
        approvals=asked,
        approvals_count=pending_approvals()[:COUNTED].count() if len(asked) == SHOWN else len(asked),
        uncertain=rows,
        uncertain_count=uncertain_runs()[:COUNTED].count() if len(rows) == SHOWN else len(rows),
        held=len(held),
        held_until=held[0] if held else None,
        held_url=listing("runs_delivery", status__exact=Delivery.Status.HELD),
    )


def _up_to(count: int, most: int) -> str:
    return f"{count:,}{'+' if count >= most else ''}"


def _approvals(may_decide: bool) -> list[Asked]:
    waits = list(first_to_expire().values_list("pk", flat=True)[:SHOWN])
    heavy = ("wait__run__input", "wait__run__result", "wait__run__policy", "wait__run__fired")
    found = Approval.objects.filter(wait__in=waits).select_related("wait__run").defer(*heavy)
    return [_asked(one, may_decide) for one in sorted(found, key=lambda one: waits.index(one.wait_id))]


def _asked(approval: Approval, may_decide: bool) -> Asked:
    wait: Wait = approval.wait
    run: Run = wait.run
    arguments, one_by_one = _in_short(approval.arguments), read(approval.arguments)
    is_low = sum(one.text.count("\n") + 1 for one in one_by_one) <= LINES
    is_whole = not approval.detail and len(approval.question) + len(arguments) <= SHORT and is_low
    is_here = may_decide and is_whole and not run.is_tainted and not approval.is_question
    value = f"{approval.pk}:{approval.digest}"
    acts = [
        Act(verb="approve", label="Approve", value=value, about=approval.question, is_primary=True),
        Act(verb="deny", label="Deny", value=value, about=approval.question),
    ]
    return Asked(
        id=f"approval-{approval.pk}",
        agent=run.agent,
        run=run_link(run.pk, "its run"),
        url=page("runs_approval", approval.pk),
        question=shortened(approval.question, SHORT),
        arguments="" if approval.is_question else arguments[:SHORT],
        read=one_by_one if len(arguments) <= SHORT and is_low and not approval.is_question else (),
        until=wait.due_at,
        is_tainted=run.is_tainted,
        acts=acts if is_here else (),
        word="Answer" if approval.is_question else "Read and decide" if may_decide else "Read",
    )


def _in_short(arguments: Any) -> str:
    return "" if arguments is None else as_json(shown_json(arguments), indent=None)


def _held() -> list[datetime]:
    """Until when, the first one first."""
    held = Delivery.objects.filter(status=Delivery.Status.HELD)
    return [at for at in held.order_by("due_at").values_list("due_at", flat=True)[:HELD] if at]
