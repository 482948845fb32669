"""The password again, where a session that was left open or stolen would do the most harm: before payloads are erased for
good, and before tokens, secrets and accounts are made or changed.

A login counts. WAKEFUL_PASSWORD_AGAIN after the session's last password, such a page leads to a form that asks for it,
and then back; a form that is posted too late is refused there, and does nothing.
"""

import time
from collections.abc import Callable
from typing import Any, cast
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import authenticate
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from unfold.widgets import UnfoldAdminPasswordWidget

from config.console.parts.dialogs import leave
from config.console.parts.pages import Group
from config.console.parts.panel import acting
from config.web.logins import Attempt
from config.web.sessions import GIVEN, note_password
from runs.audit import record

PAGES = frozenset(
    {"triggers_event_erase_event"}
    | {"triggers_apitoken_add", "triggers_source_add", "triggers_source_rotate_secret", "triggers_source_enter_secret"}
    | {f"auth_{noun}_{verb}" for noun in ("user", "group") for verb in ("add", "change", "delete")}
    # One's own password, too: its form asks for the old one, past the brake on guessing.
    | {"auth_user_password_change", "password_change"}
)
LISTS = frozenset({"auth_user_changelist", "auth_group_changelist"})  # their actions are posted to them


class PasswordForm(forms.Form):
    password = forms.CharField(
        strip=False, widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "current-password", "autofocus": True})
    )

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request = request

    def clean_password(self) -> str:
        given: str = self.cleaned_data["password"]
        # Through the backends, like a login: the brake refuses it after too many failures, and counts this one.
        user = authenticate(self._request, username=self._request.user.get_username(), password=given)
        if user is None or user.pk != self._request.user.pk:
            raise forms.ValidationError("This is not your password.")
        return given


class AskAgain:
    """Middleware."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> HttpResponse | None:
        if not _is_guarded(request) or not request.user.is_authenticated or _was_given_lately(request):
            return None
        if request.method == "POST":
            messages.warning(request, "Nothing was changed. Confirm your password, then repeat the action.")
        back = QueryDict(mutable=True)
        back["next"] = _page_of(request)
        return leave(request, f"{reverse('password_again')}?{back.urlencode(safe='/')}")


def password_again(request: HttpRequest) -> HttpResponse:
    """The form that asks."""
    back = request.GET.get("next", "")
    if not url_has_allowed_host_and_scheme(back, allowed_hosts=None):
        back = reverse("admin:index")
    form = PasswordForm(request.POST or None, request=request)
    if form.is_valid():
        request.session.cycle_key()
        note_password(request)
        name = request.user.get_username()
        Attempt.of(request, name).succeed()
        record(acting(request), "password given", cast(User, request.user), name=name)
        return HttpResponseRedirect(back)
    minutes = settings.WAKEFUL_PASSWORD_AGAIN.total_seconds() / 60
    context = {
        **admin.site.each_context(request),
        "title": "Confirm your password",
        "form": form,
        "groups": [
            Group(
                fields=[form["password"]],
                note=f"This action needs a password that was given within the last {minutes:g} min.",
            )
        ],
        "submit_text": "Continue",
        "back": reverse("admin:index"),
        "media": form.media,
        "method": "post",
    }
    return TemplateResponse(request, "admin/console/form.html", context)


def _was_given_lately(request: HttpRequest) -> bool:
    age: float = abs(time.time() - request.session.get(GIVEN, 0))  # the clock may have been set back since
    return age <= settings.WAKEFUL_PASSWORD_AGAIN.total_seconds()


def _is_guarded(request: HttpRequest) -> bool:
    match = request.resolver_match
    if match is None or match.namespace != admin.site.name:
        return False
    return match.url_name in PAGES or (request.method == "POST" and match.url_name in LISTS)


def _page_of(request: HttpRequest) -> str:
    """The page to come back to: of a dialog, which is no page, the one it was opened on."""
    try:
        opened_on = urlsplit(request.headers.get("HX-Current-URL", ""))
    except ValueError:  # no address: no browser sent it
        return request.get_full_path()
    return opened_on._replace(scheme="", netloc="").geturl() or request.get_full_path()
