"""Asks for the password again before actions that are dangerous in an open or stolen session: erasing payloads, creating or
changing tokens, secrets and accounts, changing where secrets, events and messages are sent, and linking accounts at chats.

A login counts. WAKEFUL_PASSWORD_AGAIN after the session's last password, such a page redirects to a form that asks for it
and then back; a form posted after that time is refused and changes nothing.
"""

import time
from collections.abc import Callable
from functools import cache
from typing import Any, cast
from urllib.parse import urlsplit

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.sites import all_sites
from django.contrib.auth import authenticate, get_user_model
from django.contrib.auth.models import Group, User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from unfold.widgets import UnfoldAdminPasswordWidget

from config.console.parts import pages
from config.console.parts.dialogs import leave
from config.console.parts.panel import acting
from config.web.logins import Attempt
from config.web.sessions import GIVEN, note_password
from runs.models.audit import record
from runs.users import pages_of

PAGES = frozenset(
    {"triggers_event_erase_event", "triggers_apitoken_add"}
    | {f"triggers_source_{verb}" for verb in ("add", "edit", "rotate_secret", "enter_secret")}
    | {f"{noun}_{verb}" for noun in ("runs_recipient", "triggers_subscription") for verb in ("add", "edit")}
    | {f"runs_connection_{verb}" for verb in ("add", "edit", "connect")}
    | {"triggers_subscription_rotate_secret"}
    # The user's own password, too: Django's form asks for the old one, but without the limit on failed logins. The first of
    # the names is that of Django's UserAdmin, whatever its model.
    | {"auth_user_password_change", "password_change"}
)
BESIDE = frozenset({"chat_accounts"})  # pages beside the admin's, for what they change
LISTS = ("changelist", "history")  # of accounts: read without the password; list actions post to the first


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
        name = str(request.user.get_username())
        Attempt.of(request, name).succeed()
        record(acting(request), "password given", cast(User, request.user), name=name)
        return HttpResponseRedirect(back)
    minutes = settings.WAKEFUL_PASSWORD_AGAIN.total_seconds() / 60
    context = {
        **admin.site.each_context(request),
        "title": "Confirm your password",
        "form": form,
        "groups": [
            pages.Group(
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
    if match is not None and match.url_name in BESIDE:
        return request.method == "POST" and not request.POST.get(
            "unlink"
        )  # an account that was lost is unlinked at once
    if match is None or match.app_name != "admin" or not match.url_name:
        return False
    if match.namespace == admin.site.name and match.url_name in PAGES:
        return True
    account = next((begin for begin in pages_of_accounts() if match.url_name.startswith(begin)), None)
    return account is not None and (request.method == "POST" or match.url_name.removeprefix(account) not in LISTS)


@cache
def pages_of_accounts() -> tuple[str, ...]:
    """How the names of the pages begin that change users and groups, in every admin of this site: those of their models, of proxies and
    of models that inherit from them."""
    kinds = (get_user_model(), Group)
    models = {model for site in all_sites for model in site._registry if issubclass(model, kinds)}
    return tuple(sorted(f"{pages_of(model)}_" for model in models))


def _page_of(request: HttpRequest) -> str:
    """The page to return to; for a dialog, the page it was opened on."""
    try:
        opened_on = urlsplit(request.headers.get("HX-Current-URL", ""))
    except ValueError:  # not a URL, so not sent by a browser
        return request.get_full_path()
    return opened_on._replace(scheme="", netloc="").geturl() or request.get_full_path()
