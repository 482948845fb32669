"""The page “Chat accounts”: the accounts at chats by which a person decides approvals. Superusers see those of all."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from config.console.parts.dialogs import attempt
from config.console.parts.moments import moment
from config.console.parts.panel import acting
from config.console.parts.sections import Steps
from runs.actions.chat_accounts import RIGHT, make_code, may_decide, unlink_account
from runs.exceptions import RunError
from runs.models import ChatAccount
from runs.users import is_superuser
from triggers.models import Source

SHOWN = 200
HOW = {
    "slack": ("Open any conversation of Slack with the app.", "Enter the app's slash command, then the word link and the code."),
    "telegram": ("Open the bot's own chat at Telegram, not a group.", "Send the word link and the code."),
}  # fmt: skip


class Act(forms.Form):
    """Make a code for a source, or end a link."""

    source = forms.UUIDField(required=False)
    unlink = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1)


def chat_accounts(request: HttpRequest) -> HttpResponse:
    if not _may_see(request.user):
        raise PermissionDenied
    if request.method != "POST":
        return _page(request)
    form = Act(request.POST)
    if not form.is_valid():
        return HttpResponse("Reload the page, and try again.", status=400)
    if (linked := form.cleaned_data["unlink"]) is not None:
        return _unlink(request, linked)
    if form.cleaned_data["source"] is None:
        return HttpResponse("Choose a source.", status=400)
    return _make_code(request, form.cleaned_data["source"])


def _may_see(user: Any) -> bool:
    """A user who has lost the right still sees the linked accounts, to unlink them."""
    return user.has_perm(RIGHT) or user.has_perm("runs.view_approval") or ChatAccount.objects.filter(user=user).exists()


def _unlink(request: HttpRequest, linked: int) -> HttpResponse:
    of = None if is_superuser(request.user) else request.user
    return attempt(
        request,
        lambda: unlink_account(linked, by=acting(request), of=of),
        done="Unlinked: it decides nothing any more.",
        back=reverse("chat_accounts"),
    )


def _make_code(request: HttpRequest, source_id: UUID) -> HttpResponse:
    if not request.user.has_perm(RIGHT):
        raise PermissionDenied
    source = next((one for one in _sources() if one.pk == source_id), None)
    if source is None:
        messages.error(request, "This source asks for no approvals any more.")
        return HttpResponseRedirect(reverse("chat_accounts"))
    try:
        code = make_code(request.user, source.pk, by=acting(request))
    except RunError as refusal:
        messages.error(request, str(refusal))
        return HttpResponseRedirect(reverse("chat_accounts"))
    steps = Steps(title=f"Send it within ten minutes ({source.slug})", steps=HOW[source.kind])
    return _page(request, secret=f"link {code}", steps=steps)


def _page(request: HttpRequest, *, secret: str = "", steps: Steps | None = None) -> HttpResponse:
    request.current_app = admin.site.name
    sees_all = is_superuser(request.user)
    rows = _rows(request.user, sees_all=sees_all)
    context = {
        **admin.site.each_context(request),
        "title": "Chat accounts",
        "rows": rows,
        "note": f"The {SHOWN} that were linked last." if len(rows) == SHOWN else "",
        "sees_all": sees_all,
        "sources": _sources() if may_decide(request.user) else None,
        "secret": secret,
        "explained": "It links to you the account that sends it. Never post it: another person could link an account of theirs.",
        "steps": steps,
    }
    return TemplateResponse(request, "admin/console/chat_accounts.html", context)


def _sources() -> Sequence[Source]:
    return list(Source.objects.filter(enabled=True, kind__in=list(HOW), settings__approvals="yes").order_by("slug"))


def _rows(user: Any, *, sees_all: bool) -> Sequence[dict[str, Any]]:
    found = ChatAccount.objects.select_related("user").order_by("-linked_at")
    linked = list((found if sees_all else found.filter(user=user))[:SHOWN])
    sources = {
        one.pk: one
        for one in Source.objects.filter(pk__in={one.source_id for one in linked}).prefetch_related("secrets")
    }
    decides = {pk: may_decide(one) for pk, one in {one.user_id: one.user for one in linked}.items()}
    return [
        {
            "id": one.pk,
            "source": sources[one.source_id].slug if one.source_id in sources else "deleted",
            "account": str(one),
            "name": one.name or "–",
            "user": one.user.get_username(),
            "since": moment(one.linked_at),
            "state": _state(one, sources.get(one.source_id), decides=decides[one.user_id]),
        }
        for one in linked
    ]


def _state(linked: ChatAccount, source: Source | None, *, decides: bool) -> str:
    if source is None:
        return "ended: its source is deleted"
    if linked.secret_id not in {secret.pk for secret in source.secrets.all()}:
        return "ended: the source has another secret. Link it again."
    return "decides" if decides else "refused: this user may not decide approvals"
