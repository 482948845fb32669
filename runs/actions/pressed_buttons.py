"""Decisions by the buttons of a request in a chat. A button counts in the message that was posted alone, for a linked account whose
user may decide now; then it is a decision as any other (`runs.actions.approve`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.urls import reverse

from agents.guards.atomic import not_in_atomic_body
from runs.actions.approve import Choice, decide
from runs.actions.chat_accounts import may_decide
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models import Approval, ChatAccount, Delivery, Notification
from runs.network.site import site
from runs.notifications.alarms import WAKEFUL
from runs.notifications.requests import APPROVAL, OUTCOME_OF, hurry_outcome, outcome_of
from runs.notifications.thread_rate import recent

CHOICES: Mapping[str, Choice] = {"approve": "approve", "deny": "deny", "answer": "edit"}
MOST_WHISPERS = 10  # to a person within an hour
TRIED_FOR = timedelta(minutes=10)  # later, the person has gone on


@dataclass(frozen=True, kw_only=True)
class PressedButton:
    """`way`: the kind of source, `secret_id`: what proved the delivery. `message`: where the button was, as a receipt names it."""

    way: str
    source_id: UUID
    secret_id: int
    workspace: str
    account: str
    request: UUID | None
    message: Mapping[str, Any]
    choice: str  # one of CHOICES
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Answered:
    words: str
    is_decided: bool = False  # by this press


@not_in_atomic_body
def press(button: PressedButton) -> Answered:
    """Carry out the decision of the button, in the caller's transaction if there is one. A refusal is an answer for the person alone."""
    known = ChatAccount.objects.select_related("user").filter(
        source_id=button.source_id, workspace=button.workspace, account=button.account
    )
    linked = known.first()
    if button.choice not in CHOICES:
        return Answered(words="This button is unknown here.")
    if linked is None:
        return Answered(words=f"This account is linked to no user. {how_to_link()}")
    if linked.secret_id != button.secret_id:
        return Answered(words=f"The source has another secret since this account was linked. {how_to_link()}")
    name = linked.user.get_username()
    if not may_decide(linked.user):
        return Answered(words=f"{name} may not decide approvals.")
    post = Delivery.objects.filter(pk=button.request, channel__in=list(OUTCOME_OF)).first() if button.request else None
    place: Mapping[str, Any] = (post.place or {}) if post else {}
    if post is None or APPROVAL not in place or place.get("source") != str(button.source_id):
        return Answered(words="This request is unknown here.")
    if post.receipt is None and post.status == Delivery.Status.SENDING:
        return Answered(words="The request was posted a moment ago and is not recorded yet. Try again in some seconds.")
    if post.receipt != dict(button.message):
        return Answered(words="This is not the message that the request was posted in. Decide in the console.")
    return _decide(button, UUID(place[APPROVAL]), place["digest"], name, f"{post.name}, account {linked}")


def _decide(button: PressedButton, approval_id: UUID, digest: str, name: str, seen_in: str) -> Answered:
    approval = Approval.objects.select_related("wait").filter(pk=approval_id).first()
    if approval is None:
        return Answered(words="This request is gone.")
    is_answer = button.choice == "answer"
    if is_answer and not (approval.is_question and button.text.strip()):
        return Answered(words="Enter an answer first.")
    try:
        decide(
            approval_id,
            decision=CHOICES[button.choice],
            by=f"{button.way}:{name}",
            arguments=approval.answered(button.text.strip()) if is_answer else None,
            digest=digest,
            seen={"in": seen_in},
        )
    except IllegalState:
        found = Approval.objects.select_related("wait__run").get(pk=approval_id)
        outcome = outcome_of(found)
        if outcome:
            hurry_outcome(approval_id)
            nudge_dispatcher()
        return Answered(words=outcome or "It cannot be decided by this message now. Decide in the console.")
    except ValueError as wrong:
        return Answered(words=f"{wrong}.")
    return Answered(
        words="Answered." if is_answer else "Approved." if button.choice == "approve" else "Denied.", is_decided=True
    )


def whisper(place: Mapping[str, Any], words: str) -> None:
    """Show a text to one person in a channel of Slack, a bounded number of times an hour; in the caller's transaction."""
    now = database_now()
    thread = f"whisper:{place['channel']}:{place['user']}"
    if recent({thread}, now=now)[thread] >= MOST_WHISPERS:
        return
    notification = Notification.objects.create(sender=WAKEFUL, text=words, planned_at=now)
    Delivery.objects.create(
        notification=notification,
        name=f"{place['user']} alone, in Slack channel {place['channel']}",
        channel="slack-whisper",
        place=dict(place),
        thread=thread,
        status=Delivery.Status.PENDING,
        due_at=now,
        give_up_at=now + TRIED_FOR,
    )
    nudge_dispatcher()


def how_to_link() -> str:
    return f"Link it in the console, at {site()}{reverse('chat_accounts')}, and press again."
