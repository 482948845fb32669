"""Connections: their state in words, what they are allowed, and how they are connected, tested and revoked."""

import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from unfold.forms import BaseDialogForm

from config.console.access.audit import entries_of
from config.console.connections.form import ConnectionForm
from config.console.parts.dialogs import dialog, leave
from config.console.parts.links import link, page
from config.console.parts.moments import moment
from config.console.parts.pages import form_page, plain_page
from config.console.parts.panel import Panel, acting, allowed, button, column, is_list, time_column
from config.console.parts.sections import Facts, Notice, Section, Steps, Table
from config.console.parts.service_button import service_button
from runs.connections.catalog import providers
from runs.connections.consent import begin_consent, connect_application
from runs.connections.edit import change_connection, create_connection, remove_connection
from runs.connections.ending import revoke_connection, test_connection
from runs.connections.provider import CODE, Provider
from runs.exceptions import RunError
from runs.models import Connection
from runs.network.site import site

SESSION = "connections"  # what the person's session alone knows, for the provider's answer
SENT = (
    "You are sent to the provider. Log in there with the account that agents are to act for, and allow what it lists; it sends you "
    "back here."
)
CONNECT = dialog("Connect it?", SENT, "Go to the provider")
GET = dialog("Get a token?", "A token of the application is requested from the provider.", "Get it")
TEST = dialog("Test it?", "A new token is requested from the provider now.", "Test it")
REVOKE = dialog(
    "Revoke it?",
    "Its tokens are deleted here and ended at the provider. What uses it fails until it is connected again.",
    "Revoke it",
)
DELETE = dialog(
    "Delete this connection?", "Its tokens are deleted here. To end them at the provider, revoke it first.", "Delete it"
)
WORDS = {
    "new": ("It was never connected: it gives no token.", "warning"),
    "connected": ("Connected.", "good"),
    "expired": ("Its access has expired, and nothing can renew it. Connect it again.", "bad"),
    "refused": ("The provider refuses to renew its access. Connect it again.", "bad"),
    "revoked": ("It was revoked here: it gives no token. Connect it again to use it.", "warning"),
}
COLOURS = {
    "connected": "success", "failing": "warning", "new": "default", "revoked": "default", "expired": "danger", "refused": "danger",
}  # fmt: skip


@admin.register(Connection)
class ConnectionPanel(Panel):
    """Accounts at other providers that agents and sources act for."""

    list_display = ("name", "provider_label", "whose", "standing", "renewed")
    list_filter = ("state", "provider")
    search_fields = ("name", "owner")
    search_help_text = "name or owner"
    ordering = ("name",)
    actions_detail = ("connect", "get_token", "test", "edit", "revoke", "delete_this")
    has_add_permission = allowed("runs.add_connection")

    renewed = time_column("token of", "refreshed_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Connection]:
        """Without ciphertexts; a person who may not see all rows has their own in the list."""
        rows: QuerySet[Connection] = (
            super().get_queryset(request).defer("client_secret", "access_token", "refresh_token")
        )
        if not is_list(request) or super().has_view_permission(request):
            return rows
        return rows.filter(owner_user=request.user.pk)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        if super().has_view_permission(request, obj):
            return True
        key = request.user.pk
        return obj.owner_user_id == key if obj is not None else Connection.objects.filter(owner_user=key).exists()

    @column("provider")
    def provider_label(self, connection: Connection) -> str:
        return _label(connection)

    @column("account of")
    def whose(self, connection: Connection) -> str:
        return connection.owner or "the installation"

    @column("state", label=COLOURS)
    def standing(self, connection: Connection) -> str:
        return "failing" if connection.state == "connected" and connection.failing_since else connection.state

    # Editing

    def new(self, request: HttpRequest) -> HttpResponse:
        provider = providers().get(request.GET.get("provider", ""))
        if provider is None:
            return plain_page(self, request, title="Connect an account", sections=[_choice()])
        form = ConnectionForm(request.POST or None, provider=provider, user=request.user.get_username())
        if form.is_valid():
            act = partial(create_connection, provider=provider.name, by=acting(request), **form.values)
            if (made := form.carry_out(act)) is not None:
                messages.success(request, "Saved, and not connected yet: connect it now.")
                return leave(request, page("runs_connection", made.pk))
        return form_page(
            self, request, form, title=f"Connect {provider.label}", submit="Save", back=reverse("admin:runs_connection_add"),
            groups=form.groups, sections=[_setup(provider)],
        )  # fmt: skip

    @button("Edit", permissions=["runs.change_connection"], icon="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        connection = get_object_or_404(Connection, pk=object_id)
        provider = providers().get(connection.provider)
        back = page("runs_connection", connection.pk)
        if provider is None:
            messages.error(request, f"This version knows no provider {connection.provider}.")
            return leave(request, back)
        user = request.user.get_username()
        form = ConnectionForm(request.POST or None, provider=provider, user=user, connection=connection)
        if form.is_valid():
            act = partial(change_connection, connection.pk, by=acting(request), **form.values)
            if (changed := form.carry_out(act)) is not None:
                is_ended = connection.state == "connected" != changed.state
                messages.success(
                    request,
                    "Saved. Connect it again." if is_ended else "Saved. New scopes count after the next consent.",
                )
                return leave(request, back)
        return form_page(
            self, request, form, title=f"Connection {connection.name}", submit="Save", back=back, groups=form.groups,
            sections=[_setup(provider)], obj=connection,
        )  # fmt: skip

    @service_button(
        "Delete", "runs.delete_connection", DELETE, icon="delete", url_path="remove", done="Deleted.", to_list=True
    )
    def delete_this(self, object_id: str, by: str) -> None:
        remove_connection(int(object_id), by=by)

    # Connecting

    @button("Connect", permissions=["runs.connect_connection"], icon="link", variant="primary", dialog=CONNECT)
    def connect(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        session = request.session.setdefault(SESSION, secrets.token_urlsafe(32))
        try:
            there = begin_consent(int(object_id), session=session, redirect_uri=redirect_uri(), by=acting(request))
        except (RunError, Connection.DoesNotExist) as refusal:
            messages.error(request, str(refusal))
            there = page("runs_connection", object_id)
        return leave(request, there)

    @service_button("Get a token", "runs.connect_connection", GET, icon="key", variant="primary", done="Connected.")
    def get_token(self, object_id: str, by: str) -> None:
        connect_application(int(object_id), by=by)

    @service_button("Test", "runs.test_connection", TEST, icon="network_check")
    def test(self, object_id: str, by: str) -> str:
        return test_connection(int(object_id), by=by)

    @service_button("Revoke", "runs.connect_connection", REVOKE, icon="link_off")
    def revoke(self, object_id: str, by: str) -> str:
        return revoke_connection(int(object_id), by=by)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        connection = Connection.objects.filter(pk=object_id).only("state", "grant", "owner", "owner_user").first()
        if connection is None:
            return {}
        is_connected = connection.state == Connection.State.CONNECTED
        is_own = not connection.owner or connection.owner_user_id == request.user.pk
        return {
            "connect": connection.grant == CODE and is_own,
            "get_token": connection.grant != CODE,
            "test": is_connected,
            "revoke": is_connected,
        }

    # One connection

    def sections(self, request: HttpRequest, obj: Connection) -> list[Section]:
        provider = providers().get(obj.provider)
        of_provider: list[Section] = [_scopes(obj, provider), _setup(provider)] if provider else []
        return [_notice(obj), _facts(obj), *of_provider, entries_of("connection", obj.pk)]


def redirect_uri() -> str:
    return site() + reverse("connection_callback")


def _label(connection: Connection) -> str:
    provider = providers().get(connection.provider)
    return provider.label if provider else connection.provider


def _choice() -> Table:
    """Links to the forms of the providers."""
    add = reverse("admin:runs_connection_add")
    known = sorted(providers().values(), key=lambda one: not one.scopes)  # the one without scopes is for all others
    rows = [
        (
            link(f"{add}?provider={one.name}", f"Connect {one.label}"),
            "; ".join(scope.words for scope in one.scopes[:3]) or "What the scopes of its provider allow",
        )
        for one in known
    ]
    return Table(
        title="With which provider?",
        headers=("Provider", "What it can allow, for example"),
        rows=rows,
        empty="",
        is_cards=True,
    )


def _notice(connection: Connection) -> Notice:
    text, level = WORDS[connection.state]
    if connection.state == Connection.State.CONNECTED and connection.failing_since:
        text, level = (
            "Connected, and its token cannot be renewed at the moment. It is tried again when it is needed.",
            "warning",
        )
    return Notice(text=text, level=level, details=[connection.reason] if connection.reason else [])


def _facts(connection: Connection) -> Facts:
    provider = providers().get(connection.provider) or Provider(name="", label="")
    connected = connection.state == Connection.State.CONNECTED
    renews = "yes, before it ends" if connection.refresh_token or connection.grant != CODE else "no"
    ends = moment(connection.expires_at) if connection.expires_at else "not by itself"
    return Facts(
        rows=[
            ("Name", connection.name),
            ("Provider", _label(connection)),
            ("Account of", connection.owner or "the installation"),
            (provider.id_label, connection.client_id),
            (
                provider.secret_label,
                "stored, encrypted" if connection.client_secret is not None else "none",
            ),
            ("Connected", moment(connection.connected_at) if connected else ""),
            ("By", connection.connected_by if connected else ""),
            ("Token of", moment(connection.refreshed_at) if connected else ""),
            ("The token ends", ends if connected else ""),
            ("It is renewed", renews if connected else ""),
            ("Consent ends", moment(connection.refresh_expires_at) if connection.refresh_expires_at else ""),
            ("Failing since", moment(connection.failing_since) if connection.failing_since else ""),
            ("Tries without a token", connection.failures or ""),
        ]
    )


def _scopes(connection: Connection, provider: Provider) -> Table:
    names = dict.fromkeys([*connection.scopes, *connection.granted])
    granted = set(connection.granted)
    connected = connection.state == Connection.State.CONNECTED
    rows = [
        (provider.words_of(name), name, ("yes" if name in granted else "no: connect it again") if connected else "–")
        for name in names
    ]
    return Table(
        title="What it may do",
        headers=("It may", "Scope", "Granted"),
        rows=rows,
        empty="No scopes are chosen: the application at the provider decides.",
    )


def _setup(provider: Provider) -> Steps:
    uri = redirect_uri()
    return Steps(
        title=f"Set-up at {provider.label}",
        steps=[step.format(redirect_uri=uri) for step in provider.setup],
        note=f"The redirect URI is {uri}, exactly. If it does not begin as people reach this site, set WAKEFUL_URL."
        if CODE in provider.grants
        else "",
    )
