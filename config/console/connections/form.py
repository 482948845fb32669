"""The form of a connection of one provider: its client, its scopes in words, and its addresses where the provider leaves them open."""

from collections.abc import Callable
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldAdminTextareaWidget

from config.console.parts import fields
from config.console.parts.pages import Group
from config.console.parts.service_form import ServiceForm
from runs.connections.provider import CODE, Provider
from runs.models import Connection


class HiddenText(UnfoldAdminTextareaWidget):  # type: ignore[misc]
    """Of several lines, and never shown again, as of a password."""

    def get_context(self, name: str, value: Any, attrs: Any) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context(name, None, attrs)
        return context


T = TypeVar("T")
SETTING = "setting_"  # how the names of the provider's own fields begin
OF_INSTALLATION = "The installation: an account that belongs to no single person"


class ConnectionForm(ServiceForm):
    name = fields.CharField(help_text="Enter what agents and sources call it, e.g. gmail.")
    owner = fields.RadioField(
        required=False,
        label="Whose account",
        help_text="A connection of your own ends when you may no longer log in, and no one else connects it.",
    )
    grant = fields.RadioField(choices=Connection.Grant.choices, initial=CODE, label="Who logs in at the provider")
    client_id = fields.CharField(label="Client ID")
    client_secret = forms.CharField(
        required=False,
        label="Client secret",
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "off"}),
        help_text="It is stored encrypted and never shown again.",
    )
    scopes = fields.MultipleChoiceField(
        required=False, label="What it is to be allowed", help_text="Choose as little as will do."
    )
    more_scopes = fields.CharField(
        required=False,
        label="Other scopes",
        help_text="Names of scopes as the provider writes them, separated by spaces.",
    )

    def __init__(
        self, data: Any = None, *, provider: Provider, user: str, connection: Connection | None = None
    ) -> None:
        super().__init__(data, initial=_values(provider, connection))
        self.provider = provider
        own: Any = self.fields
        own["client_id"].label, own["client_secret"].label = provider.id_label, provider.secret_label
        if provider.signs:
            own["client_secret"].widget = HiddenText(attrs={"rows": 6, "autocomplete": "off", "spellcheck": "false"})
        own["owner"].choices = [("", OF_INSTALLATION), (user, f"Me, {user}")]
        own["grant"].choices = [one for one in own["grant"].choices if one[0] in provider.grants]
        own["scopes"].choices = [(one.name, one.words) for one in provider.scopes]
        for setting in provider.settings:
            own[SETTING + setting.name] = fields.CharField(
                required=setting.is_required, label=setting.label, help_text=setting.help_text
            )
        if connection is not None:
            own["client_secret"].help_text = "Empty: it stays. With another client or other addresses, enter it again."
        without = [
            *(["name", "owner", "grant"] if connection else []),
            *(["grant"] if len(provider.grants) == 1 else []),
            *([] if provider.scopes else ["scopes"]),
        ]
        for name in without:
            own.pop(name, None)

    @property
    def values(self) -> dict[str, Any]:
        """The arguments of the service."""
        given = self.cleaned_data
        names = ("name", "owner", "grant", "client_id", "client_secret")
        plain: dict[str, Any] = {name: given[name] for name in names if name in given}
        if "name" in given:  # it is new
            plain.setdefault("grant", self.provider.grants[0])
        settings = {one.name: given[SETTING + one.name] for one in self.provider.settings}
        return {**plain, "scopes": [*given.get("scopes", []), *given["more_scopes"].split()], "settings": settings}

    def carry_out(self, act: Callable[[], T]) -> T | None:
        """A fault of a setting stands at its field."""

        def named() -> T:
            try:
                return act()
            except ValidationError as faults:
                told = faults.message_dict
                raise ValidationError({self._field(name): texts for name, texts in told.items()}) from None

        return super().carry_out(named)

    def _field(self, name: str) -> str:
        return SETTING + name if SETTING + name in self.fields else name

    @property
    def groups(self) -> list[Group]:
        def of(*names: str) -> list[Any]:
            return [self[name] for name in names if name in self.fields]

        settings = of(*(SETTING + one.name for one in self.provider.settings))
        return [
            *([Group(fields=found)] if (found := of("name", "owner", "grant")) else []),
            Group(
                title="Its application at the provider",
                note="The steps below make one.",
                fields=[*of("client_id", "client_secret"), *settings],
            ),
            Group(title="Scopes", fields=of("scopes", "more_scopes")),
        ]


def _values(provider: Provider, connection: Connection | None) -> dict[str, Any]:
    if connection is None:
        return {
            "name": provider.name.partition("_")[0],
            "grant": CODE,
            **{SETTING + one.name: one.default for one in provider.settings},
        }
    known = {one.name for one in provider.scopes}
    settings = {one.name: connection.settings.get(one.name, "") for one in provider.settings}
    return {
        "client_id": connection.client_id,
        "scopes": [one for one in connection.scopes if one in known],
        "more_scopes": " ".join(one for one in connection.scopes if one not in known),
        **{SETTING + name: " ".join(value) if isinstance(value, list) else value for name, value in settings.items()},
    }
