from collections.abc import Mapping
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import pluralize

from config.api import router
from config.console.access.audit import entries_of
from config.console.parts import fields
from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import dialog
from config.console.parts.links import link, listing, page
from config.console.parts.moments import moment
from config.console.parts.pages import form_page, reveal
from config.console.parts.panel import Panel, acting, allowed, column, time_column
from config.console.parts.sections import Facts, Notice, Section
from config.console.parts.service_button import service_button
from runs.users import is_superuser
from triggers.api.tokens import ALL, create_token, revoke
from triggers.models import ApiToken


class TokenForm(forms.Form):
    """A new token: its name and its permissions, at most those of its creator."""

    name = fields.CharField(
        max_length=90,
        help_text="Use letters, digits, - and _. Events sent with the token get the source api-<em>name</em>.",
    )
    everything = fields.BooleanField(required=False, label="All permissions")
    granted = fields.MultipleChoiceField(required=False, label="Permissions")

    def __init__(self, *args: Any, maker: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        granted = [(name, text) for name, text in _permissions() if maker.has_perm(name)]
        self.fields["granted"].choices = granted  # type: ignore[attr-defined]
        if not is_superuser(maker):
            del self.fields["everything"]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not cleaned.get("everything") and not cleaned.get("granted"):
            raise ValidationError("Choose at least one permission: a token without permissions can do nothing.")
        return cleaned


REVOKE = dialog(
    "Revoke this token?", "Requests with it are refused from now on. This cannot be undone.", "Revoke the token"
)


@admin.register(ApiToken)
class TokenPanel(Panel):
    """Bearer tokens of the API."""

    list_display = ("name", "state", "may", "created", "used")
    ordering = ("name",)
    list_filter = (("revoked_at", admin.EmptyFieldListFilter),)
    actions = ("revoke_chosen",)
    actions_detail = ("revoke_token",)

    @column("state", label={"active": "success", "revoked": "default"})
    def state(self, token: ApiToken) -> str:
        return "revoked" if token.revoked_at else "active"

    @column("may")
    def may(self, token: ApiToken) -> str:
        return (
            "everything"
            if ALL in token.permissions
            else f"{len(token.permissions)} permission{pluralize(len(token.permissions))}"
        )

    created = time_column("created", "created_at")
    used = time_column("last used", "last_used_at")

    has_add_permission = allowed("triggers.add_apitoken")
    has_revoke_permission = allowed("triggers.change_apitoken")

    def new(self, request: HttpRequest) -> HttpResponse:
        form = TokenForm(request.POST or None, maker=request.user)
        if form.is_valid() and (made := _create(form, request)):
            token, plain = made
            explained = f"Send it in the header “Authorization: Bearer …”. The token’s name is {token.name}."
            back = page("triggers_apitoken", token.pk)
            return reveal(self, request, title="API token created", secret=plain, explained=explained, back=back)
        back = listing("triggers_apitoken")
        return form_page(self, request, form, title="New API token", submit="Create the token", back=back)

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke_chosen(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        carry_out(request, queryset, revoke, done="revoked", legal=Q(revoked_at=None), otherwise="already revoked")

    @service_button("Revoke", "triggers.change_apitoken", REVOKE, icon="block", variant="danger")
    def revoke_token(self, object_id: str, by: str) -> str:
        token = ApiToken.objects.get(pk=object_id)
        revoke(token, by=by)
        return f"{token.name} is revoked."

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        return {"revoke_token": ApiToken.objects.filter(pk=object_id, revoked_at=None).exists()}

    def sections(self, request: HttpRequest, obj: ApiToken) -> list[Section]:
        state = Notice(text="Revoked.") if obj.revoked_at else Notice(text="Active.", level="good")
        facts = Facts(
            rows=[
                ("Name", obj.name),
                ("Permissions", "everything" if ALL in obj.permissions else ", ".join(obj.permissions)),
                ("Created", moment(obj.created_at)),
                ("Last used", moment(obj.last_used_at)),
                ("Revoked", obj.revoked_at and moment(obj.revoked_at)),
                ("Its events", link(listing("triggers_event", source__id__exact=obj.source_id), "list")),
            ]
        )
        return [state, facts, entries_of("apitoken", obj.pk)]


def _create(form: TokenForm, request: HttpRequest) -> tuple[ApiToken, str] | None:
    wanted = [ALL] if form.cleaned_data.get("everything") else form.cleaned_data["granted"]
    try:
        return create_token(form.cleaned_data["name"], wanted, by=acting(request))
    except ValidationError as error:
        form.add_error("name", error.messages)
        return None


def _permissions() -> list[tuple[str, str]]:
    """The permissions that actions of the API require, with their names."""
    resources: list[Any] = [resource for _, resource, _ in router.registry]
    asked = {permission for resource in resources for permission in resource.required_permissions.values()}
    known = Permission.objects.order_by("content_type__app_label", "codename")
    rows = known.values_list("content_type__app_label", "codename", "name")
    return [(f"{app}.{code}", f"{name} ({app}.{code})") for app, code, name in rows if f"{app}.{code}" in asked]
