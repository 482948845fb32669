"""Signed links to approvals. The link is the right to decide, like a key: it needs no login.

A GET only shows the approval, because mail programs and chats open links by themselves; the form's POST decides. The link
names the approval and its digest, so it is valid for that question alone, while the approval is open. Afterwards it shows
only the outcome: links stay in mailboxes, and the admin shows the rest to people with permission.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django import forms
from django.conf import settings
from django.core import signing
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone
from django.utils.cache import patch_cache_control
from django.views import View

from agents.kernel.redaction import shown, shown_json
from runs.actions.approve import decide, is_over
from runs.actions.readable_arguments import Argument, as_json, read
from runs.api.strict_json import Unreadable, parse_json, require_storable
from runs.exceptions import IllegalState
from runs.models import Approval

HEADERS = {
    "X-Robots-Tag": "noindex, nofollow",
    # Not no-referrer: with that, browsers send `Origin: null` with the form, which the CSRF check refuses.
    # Neither policy sends anything to other sites.
    "Referrer-Policy": "same-origin",
    # The script shows times in the reader's zone.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; form-action 'self'; "
    "frame-ancestors 'none'",
}
LEAST_ROWS, MOST_ROWS = 3, 12  # of the box with the arguments
CHOICES = [("approve", "approve"), ("edit", "approve with edited arguments"), ("deny", "deny")]


def signer() -> signing.Signer:
    # Created on use: the module must be importable without a secret key, so that the system check can report it.
    return signing.Signer(salt="runs.approval")


def approval_link(approval: Approval) -> str:
    """The path of the page that decides this approval."""
    return reverse("approval", args=[signer().sign_object([str(approval.pk), approval.digest])])


class DecisionForm(forms.Form):
    """A decision, with the edited arguments if there are any."""

    decision = forms.ChoiceField(choices=CHOICES, widget=forms.HiddenInput)
    arguments = forms.CharField(required=False, strip=False)
    answer = forms.CharField(required=False, max_length=4000)
    reason = forms.CharField(required=False, max_length=1000)

    def __init__(self, approval: Approval, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.approval = approval

    def clean(self) -> dict[str, Any]:
        given: dict[str, Any] = self.cleaned_data
        decision, text, answer = given.get("decision"), given.pop("arguments", ""), given.pop("answer", "")
        if self.approval.is_question:
            return self._with_answer(given, answer)
        if decision == "edit":
            given["arguments"] = _arguments(text)
        elif decision == "approve" and text and self._has_edited(text):
            # Without this, the person's edit would be dropped silently.
            raise forms.ValidationError(
                "You have edited the arguments. Approve with edited arguments, or restore the original ones."
            )
        return given

    def _with_answer(self, given: dict[str, Any], answer: str) -> dict[str, Any]:
        if given.get("decision") == "edit" and not answer:
            raise forms.ValidationError("Enter an answer.")
        if given.get("decision") == "approve" and answer:
            raise forms.ValidationError("You have entered an answer. Send it, or clear it.")
        return {**given, "arguments": self.approval.answered(answer)} if given.get("decision") == "edit" else given

    def _has_edited(self, text: str) -> bool:
        asked = shown_json(self.approval.arguments)
        return text.replace("\r\n", "\n") != as_json(asked) and _arguments(text) != asked


def _arguments(text: str) -> Any:
    try:
        arguments = parse_json(text.encode("utf-8", "surrogateescape"))
        require_storable(arguments)
    except Unreadable as reason:
        raise forms.ValidationError(f"The arguments: {reason}") from None
    return arguments


class ApprovalLinkView(View):
    """The page behind a signed link."""

    def get(self, request: HttpRequest, token: str) -> HttpResponse:
        return _page(request, _approval(token), None)

    def post(self, request: HttpRequest, token: str) -> HttpResponse:
        approval = _approval(token)
        form = DecisionForm(approval, request.POST)
        if not form.is_valid():
            return _page(request, approval, form, status=400)
        try:
            decide(approval.pk, by=_acting(request), digest=approval.digest, **form.cleaned_data)
        except ValueError as error:
            form.add_error(None, str(error))
            return _page(request, approval, form, status=400)
        except IllegalState:
            return _page(request, _approval(token), None, status=409)
        return HttpResponseRedirect(request.path, headers=HEADERS)


def _approval(token: str) -> Approval:
    """The approval of a link; 404 if the signature or the digest is wrong, or the run was deleted."""
    try:
        approval_id, digest = signer().unsign_object(token)
        approval = Approval.objects.select_related("wait__run").get(pk=UUID(approval_id))
    except (signing.BadSignature, ValueError, TypeError, Approval.DoesNotExist):
        raise Http404 from None
    if approval.digest not in (digest, ""):  # retention removes the digest; the outcome stays visible
        raise Http404
    return approval


def _acting(request: HttpRequest) -> str:
    """The acting person for the audit log: a login is optional, but a logged-in user is named."""
    user = getattr(request, "user", None)
    return f"link:{user.get_username()}" if user is not None and user.is_authenticated else "link"


def _with_lines(arguments: Any) -> Sequence[Argument]:
    """The arguments one by one, if JSON would hide the line breaks of a text."""
    found = read(arguments)
    return found if any("\n" in one.text for one in found if one.is_text) else ()


def _page(request: HttpRequest, approval: Approval, form: DecisionForm | None, status: int = 200) -> HttpResponse:
    state = "expired" if is_over(approval) else approval.status
    arguments = shown_json(approval.arguments)
    asked = None if arguments is None or approval.is_question else as_json(arguments)
    edited = form.data.get("arguments", "") if form else None
    context = {
        "approval": approval,
        "question": shown(approval.question),
        "detail": shown(approval.detail),
        "state": state,
        "form": form,
        "asked": asked,
        "read": _with_lines(arguments) if asked else (),
        "edited": edited,
        "rows": min(max(len((edited or asked or "").splitlines()), LEAST_ROWS), MOST_ROWS),
        "zone": settings.WAKEFUL_ZONE,
    }
    # Without the script, times are in the zone of the site: a reader without a login has no other.
    with timezone.override(ZoneInfo(str(settings.WAKEFUL_ZONE))):
        response = render(request, "approvals/decide.html", context, status=status)
    # Keep Django from logging the path of a 400 or 409: it is the key to a decision that may still be open.
    response._has_been_logged = True  # type: ignore[attr-defined]
    for name, value in HEADERS.items():
        response[name] = value
    patch_cache_control(response, no_store=True, private=True)
    return response
