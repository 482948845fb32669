"""The inbox of approvals that runs wait for."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.safestring import SafeString
from unfold.forms import BaseDialogForm

from agents.kernel.redaction import shown_json
from config.console.access.audit import entries_of
from config.console.parts import fields
from config.console.parts.arguments import Arguments
from config.console.parts.dialogs import dialog, submit
from config.console.parts.html import format_html
from config.console.parts.json_field import JsonField
from config.console.parts.links import agent_link, link, page, run_link
from config.console.parts.moments import appointment, distance, moment
from config.console.parts.panel import Panel, acting, button, column, is_list
from config.console.parts.sections import Facts, Notice, Section, Text
from config.console.runs.taint import taint_of
from config.console.runs.words import first_line
from runs.actions.approve import Choice, decide
from runs.models import Approval, Wait

PENDING = "pending"
COLOURS = {
    PENDING: "warning",
    "approved": "success",
    "edited": "success",
    "denied": "danger",
    "expired": "default",
    "closed": "default",
}


class StatusFilter(admin.SimpleListFilter):
    """Shows pending approvals by default."""

    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("decided", "decided"), ("over", "expired or closed"), ("all", "all")]

    def choices(self, changelist: Any) -> Any:
        unfiltered, *others = super().choices(changelist)
        yield {**unfiltered, "display": PENDING}
        yield from others

    def queryset(self, request: HttpRequest, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        match self.value():
            case None:
                return queryset.filter(wait__status=Wait.Status.OPEN, wait__kind=Wait.Kind.APPROVAL)
            case "decided":
                return queryset.exclude(decision="")
            case "over":
                return queryset.filter(wait__status__in=[Wait.Status.EXPIRED, Wait.Status.CLOSED], decision="")
        return queryset


class DecisionForm(BaseDialogForm):  # type: ignore[misc]
    """A decision form, bound to the shown question: if the run's question has changed meanwhile, the decision is
    refused.
    """

    digest = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.approval = get_object_or_404(Approval, pk=self.object_id)
        self.initial = {"digest": self.approval.digest, "arguments": shown_json(self.approval.arguments)}


class ApproveForm(DecisionForm):
    reason: forms.CharField = fields.TextField(required=False, max_length=1000, rows=2)


class EditForm(ApproveForm):
    arguments = JsonField(
        required=True, rows=10, label="Arguments (JSON)", help_text="Edit the arguments that the agent uses."
    )
    field_order = ("digest", "arguments", "reason")


class AnswerForm(ApproveForm):
    answer = fields.TextField(max_length=4000, rows=4)
    reason = forms.CharField(required=False, widget=forms.HiddenInput)


ANSWER = dialog("Answer?", "The run continues, and its model gets the answer.", "Send the answer", AnswerForm)
APPROVE = dialog("Approve?", "The run continues with the arguments as shown.", "Approve", ApproveForm)
EDIT = dialog("Approve with other arguments?", "The run continues with these arguments.", "Approve these", EditForm)
DENY = dialog("Deny?", "The run continues and receives the denial.", "Deny", ApproveForm)


@admin.register(Approval)
class ApprovalPanel(Panel):
    """Approvals that runs wait for."""

    list_display = ("status_label", "question_shown", "agent", "run_shown", "since", "until", "decided")
    list_display_links = ("status_label", "question_shown")
    list_filter = (StatusFilter,)
    list_select_related = ("wait__run",)
    actions_detail = ("answer", "approve", "edit", "deny")

    # Lists

    def get_queryset(self, request: HttpRequest) -> QuerySet[Approval]:
        approvals = super().get_queryset(request).select_related("wait__run")
        return approvals.defer("wait__run__input", "wait__run__result", "wait__run__policy")

    def get_ordering(self, request: HttpRequest) -> tuple[str, ...]:
        is_pending = is_list(request) and StatusFilter.parameter_name not in request.GET
        return ("wait_id",) if is_pending else ("-wait_id",)  # pending: the longest waiting first; else the newest

    @column("status", label=COLOURS)
    def status_label(self, approval: Approval) -> str:
        return approval.status

    @column("question")
    def question_shown(self, approval: Approval) -> str:
        return first_line(approval.question)

    @column("agent")
    def agent(self, approval: Approval) -> str:
        return approval.wait.run.agent

    @column("run")
    def run_shown(self, approval: Approval) -> SafeString:
        return run_link(approval.wait.run_id)

    @column("since")
    def since(self, approval: Approval) -> SafeString:
        return moment(approval.wait.created_at)

    @column("until", empty_value="no end")
    def until(self, approval: Approval) -> SafeString | None:
        return moment(approval.wait.due_at) if approval.wait.due_at else None

    @column("decided", empty_value="–")
    def decided(self, approval: Approval) -> SafeString | None:
        return (
            format_html("{} by {}", moment(approval.decided_at), approval.decided_by) if approval.decided_at else None
        )

    # Deciding

    @button("Answer", permissions=["runs.decide_approval"], icon="chat", variant="primary", dialog=ANSWER)
    def answer(self, request: HttpRequest, form: AnswerForm, object_id: str) -> HttpResponse:
        done = "Answered: the run continues."
        return self._decide(request, ANSWER, form, object_id, "edit", field="answer", done=done)

    @button("Approve", permissions=["runs.decide_approval"], icon="check", variant="success", dialog=APPROVE)
    def approve(self, request: HttpRequest, form: ApproveForm, object_id: str) -> HttpResponse:
        return self._decide(
            request, APPROVE, form, object_id, "approve", field="reason", done="Approved: the run continues."
        )

    @button("Edit and approve", permissions=["runs.decide_approval"], icon="edit", dialog=EDIT)
    def edit(self, request: HttpRequest, form: EditForm, object_id: str) -> HttpResponse:
        done = "Approved with other arguments: the run continues."
        return self._decide(request, EDIT, form, object_id, "edit", field="arguments", done=done)

    @button("Deny", permissions=["runs.decide_approval"], icon="block", variant="danger", dialog=DENY)
    def deny(self, request: HttpRequest, form: ApproveForm, object_id: str) -> HttpResponse:
        return self._decide(request, DENY, form, object_id, "deny", field="reason", done="Denied: the run continues.")

    def _decide(
        self,
        request: HttpRequest,
        shown: dict[str, Any],
        form: ApproveForm,
        object_id: str,
        decision: Choice,
        *,
        field: str,
        done: str,
    ) -> HttpResponse:
        said = form.cleaned_data

        def act() -> None:
            decide(
                UUID(object_id),
                decision=decision,
                by=acting(request),
                arguments=form.approval.answered(said["answer"]) if "answer" in said else said.get("arguments"),
                reason=said["reason"],
                digest=said["digest"],
            )

        return submit(request, shown, form, act, field=field, done=done, back=page("runs_approval", object_id))

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        approval = Approval.objects.select_related("wait").filter(pk=object_id).first()
        if approval is None or approval.status != PENDING:
            return dict.fromkeys(self.actions_detail, False)
        # A question gets a text as its answer, or yes or no; its arguments are the question itself.
        can_edit = not approval.is_question and approval.arguments is not None
        return {"edit": can_edit, "answer": approval.is_question}

    # One approval

    def sections(self, request: HttpRequest, obj: Approval) -> list[Section]:
        sections: list[Section] = [_notice(obj)]
        if obj.detail:
            sections.append(Text(title="Details", text=obj.detail))
        if obj.arguments is not None and not obj.is_question:
            sections.append(
                Arguments(title="Arguments", value=obj.arguments, note="The agent uses them if you approve.")
            )
        if obj.decision == Approval.Decision.EDIT:
            sections.append(_edited(obj))
        return [*sections, _facts(obj), entries_of("approval", obj.pk)]


def _edited(approval: Approval) -> Section:
    if approval.is_question and isinstance(approval.decided_arguments, dict):
        return Text(title="Answer", text=str(approval.decided_arguments.get(Approval.ANSWER, "")))
    return Arguments(title="Approved arguments", value=approval.decided_arguments)


def _notice(approval: Approval) -> Notice:
    wait, status = approval.wait, approval.status
    details: list[Any]
    if status == PENDING:
        expiry = approval.get_on_expiry_display()
        if wait.due_at:
            details = [
                format_html("Until {} ({}); after that it {}.", appointment(wait.due_at), distance(wait.due_at), expiry)
            ]
        else:
            details = ["No time limit."]
        details.append(link(f"{reverse('inbox')}#waiting-{approval.pk}", "Decide it in the inbox"))
        return Notice(
            text=format_html("{} asks: {}", wait.run.agent, approval.question), level="warning", details=details
        )
    level = {"approved": "good", "edited": "good", "denied": "bad"}.get(status, "info")
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    reason = [f"Reason: {approval.reason}"] if approval.reason else []
    word = "answered" if approval.is_question and status == "edited" else status
    return Notice(text=f"{word.capitalize()}{by}: {approval.question}", level=level, details=reason)


def _facts(approval: Approval) -> Facts:
    wait = approval.wait
    return Facts(
        rows=[
            ("Agent", agent_link(wait.run.agent)),
            ("Run", format_html("{} {}", run_link(wait.run_id), wait.run.status)),
            ("Tainted", taint_of(wait.run)),
            ("Asked", moment(wait.created_at)),
            ("Until", wait.due_at and moment(wait.due_at)),
            ("Decided", approval.decided_at and moment(approval.decided_at)),
            ("By", approval.decided_by),
            ("Digest of question and arguments", format_html("<code>{}</code>", approval.digest)),
        ]
    )
