"""The form of a source: the fields of every source, and the settings of its scheme."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.boundfield import BoundField
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget, UnfoldBooleanSwitchWidget

from config.console.parts.pages import Group
from triggers.models import Source
from triggers.sources.webhooks.scheme import Scheme, schemes
from triggers.sources.settings import Field, InvalidSettings


class SettingsForm(forms.Form):
    """The settings of one source's kind, each field named `<kind>__<setting>`."""

    enabled = forms.BooleanField(
        required=False,
        initial=True,
        widget=UnfoldBooleanSwitchWidget,
        help_text="Turn off to answer 404 at its address.",
    )

    def __init__(self, *args: Any, kinds: list[str], values: dict[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.kinds = kinds
        for kind in kinds:
            for field in schemes()[kind].fields:
                self.fields[f"{kind}__{field.name}"] = _form_field(field, (values or {}).get(field.name))

    def kind(self) -> str:
        return self.kinds[0]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        kind = self.kind()
        if kind in self.kinds:
            cleaned["settings"] = {field.name: cleaned.get(f"{kind}__{field.name}") for field in schemes()[kind].fields}
            self._check(kind, cleaned)
        return cleaned

    def _check(self, kind: str, cleaned: dict[str, Any]) -> None:
        try:
            schemes()[kind].clean_settings(cleaned["settings"])
        except InvalidSettings as error:
            for name, problem in error.errors.items():
                field = f"{kind}__{name}"
                self.add_error(field if field in self.fields else None, problem)

    def groups(self) -> list[Group]:
        return [Group(fields=[self["enabled"]]), *(self._settings_of(kind) for kind in self.kinds)]

    def _settings_of(self, kind: str) -> Group:
        scheme = schemes()[kind]
        fields: list[BoundField] = [self[f"{kind}__{field.name}"] for field in scheme.fields]
        return Group(
            title=scheme.label, note=scheme.help_text, fields=fields, when=[kind] if len(self.kinds) > 1 else ()
        )


class NewSourceForm(SettingsForm):
    """A new source of any kind."""

    slug = forms.SlugField(
        max_length=100,
        widget=UnfoldAdminTextInputWidget,
        help_text="Becomes part of its address: /hooks/<em>slug</em>/. It cannot be changed later.",
    )
    choice = forms.ChoiceField(
        label="Sender",
        widget=UnfoldAdminSelectWidget(attrs={"x-model": "choice"}),
        help_text="Choose how deliveries are authenticated.",
    )
    secret = forms.CharField(
        required=False,
        strip=False,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        label="Signing secret",
        help_text="Paste the provider's secret, or leave it empty to generate one, which is shown once.",
    )
    field_order = ("slug", "choice", "enabled", "secret")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, kinds=sorted(schemes(), key=_verified_first), **kwargs)
        self.fields["choice"].choices = [(kind, schemes()[kind].label) for kind in self.kinds]  # type: ignore[attr-defined]
        self.initial.setdefault("choice", self.kinds[0])

    def kind(self) -> str:
        return str(self.cleaned_data.get("choice", ""))

    def clean_slug(self) -> str:
        slug: str = self.cleaned_data["slug"]
        if Source.objects.filter(slug=slug).exists():
            raise ValidationError("A source with this slug already exists.")
        return slug

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        kind, secret = self.kind(), cleaned.get("secret")
        if kind in self.kinds and secret:
            try:
                cleaned["secret"] = schemes()[kind].clean_secret(secret)
            except InvalidSettings as error:
                self.add_error("secret", "; ".join(error.errors.values()))
        return cleaned

    def groups(self) -> list[Group]:
        common = Group(fields=[self[name] for name in ("slug", "choice", "enabled")])
        secret = Group(fields=[self["secret"]], when=[kind for kind in self.kinds if schemes()[kind].needs_secret])
        return [common, secret, *(self._settings_of(kind) for kind in self.kinds)]


def _verified_first(kind: str) -> tuple[bool, str]:
    return not schemes()[kind].needs_secret, kind


def _form_field(field: Field, value: Any) -> forms.Field:
    initial = field.default if value is None else value
    common: dict[str, Any] = {"label": field.label, "help_text": field.help_text, "initial": initial, "required": False}
    if isinstance(field.default, bool):
        return forms.BooleanField(widget=UnfoldBooleanSwitchWidget, **common)
    if field.choices:
        choices = [(choice, choice) for choice in field.choices]
        return forms.ChoiceField(choices=choices, widget=UnfoldAdminSelectWidget, **common)
    return forms.CharField(strip=False, widget=UnfoldAdminTextInputWidget, **common)


def scheme_of(source: Source) -> Scheme[Any] | None:
    """Its webhook scheme; built-in sources and API tokens have none."""
    return schemes().get(source.kind)
