"""Asks for the password again before actions that are dangerous in an open or stolen session: erasing payloads, creating or
changing tokens, secrets and accounts, and changing where secrets, events and messages are sent.

A login counts. WAKEFUL_PASSWORD_AGAIN after the session's last password, such a page redirects to a form that asks for it
and then back; a form posted after that time is refused and changes nothing.
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
from runs.models.audit import record

PAGES = frozenset(
    {"triggers_event_erase_event", "triggers_apitoken_add"}
    | {f"triggers_source_{verb}" for verb in ("add", "edit", "rotate_secret", "enter_secret")}
    | {f"{noun}_{verb}" for noun in ("runs_recipient", "triggers_subscription") for verb in ("add", "edit")}
    | {"triggers_subscription_rotate_secret"}
    | {f"auth_{noun}_{verb}" for noun in ("user", "group") for verb in ("add", "change", "delete")}
    # The user's own password, too: Django's form asks for the old one, but without the limit on failed logins.
    | {"auth_user_password_change", "password_change"}
)
LISTS = frozenset({"auth_user_changelist", "auth_group_changelist"})  # list actions post to these pages


class PasswordForm(forms.Form):
    password = forms.CharField(
        strip=False, widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "current-password", "autofocus": True})
    )

    def __init__(self, *args: Any, request: HttpRequest, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request = request

    def clean_password(self) -> str:
        given: str = self.cleaned_data["password"]
        # Through the backends, like a login: the limit on failed logins counts and applies here too.
        user = authenticate(self._request, username=self._request.user.get_username(), password=given)
        if user is None or user.pk != self._request.user.pk:
            raise forms.ValidationError("Wrong password.")
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
    """The page with the password form."""
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
                note=f"This action requires that you entered your password in the last {minutes:g} min.",
            )
        ],
        "submit_text": "Continue",
        "back": reverse("admin:index"),
        "media": form.media,
        "method": "post",
    }
    return TemplateResponse(request, "admin/console/form.html", context)


def _was_given_lately(request: HttpRequest) -> bool:
    age: float = abs(time.time() - request.session.get(GIVEN, 0))  # abs(): the clock may have been set back since
    return age <= settings.WAKEFUL_PASSWORD_AGAIN.total_seconds()


def _is_guarded(request: HttpRequest) -> bool:
    match = request.resolver_match
    if match is None or match.namespace != admin.site.name:
        return False
    return match.url_name in PAGES or (request.method == "POST" and match.url_name in LISTS)


def _page_of(request: HttpRequest) -> str:
    """The page to return to; for a dialog, the page it was opened on."""
    try:
        opened_on = urlsplit(request.headers.get("HX-Current-URL", ""))
    except ValueError:  # not a URL, so not sent by a browser
        return request.get_full_path()
    return opened_on._replace(scheme="", netloc="").geturl() or request.get_full_path()
