"""The form of a source: the fields of every source, the settings of its kind, and the limits of a webhook."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.boundfield import BoundField
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminTextInputWidget

from config.console.parts import fields
from config.console.parts.pages import Group
from config.console.sources.explained import explained
from config.console.sources.setup import setup_steps
from triggers.models import Source
from triggers.sources.kind import Kind, kinds
from triggers.sources.runner import Runner
from triggers.sources.settings import Field, InvalidSettings
from triggers.sources.webhooks.limits import clean_limits, limit_fields, without_defaults
from triggers.sources.webhooks.scheme import Scheme


class SettingsForm(forms.Form):
    """The settings of one kind, each field named `<kind>__<setting>`, and the limits, named `limits__<limit>`."""

    enabled = fields.BooleanField(required=False, initial=True, help_text="Turn off to answer 404 at its address.")
    trusted = fields.BooleanField(
        required=False,
        label="Trusted",
        help_text="Turn on only if no stranger can write a word of its data. Otherwise a run that it wakes is tainted by its first "
        "call of a model, and its dangerous tools need a person's approval.",
    )

    def __init__(
        self,
        *args: Any,
        kind: Kind[Any],
        values: dict[str, Any] | None = None,
        limits: dict[str, Any] | None = None,
        asks_secret: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.kind = kind
        self.initial.setdefault("trusted", kind.is_trusted)
        if not isinstance(kind, Scheme):
            self.fields["enabled"].help_text = "Turn off to stop reading from it."
        if kind.cases:
            self.fields["case"] = fields.RadioField(
                label=kind.case_label,
                choices=[(case.name, case.label) for case in kind.cases],
                initial=(kind.case_of(values or {}) or kind.cases[0]).name,
                required=False,
            )
            self.fields["case"].widget.attrs["x-model"] = "choice"
        for field in kind.fields:
            self.fields[f"{kind.name}__{field.name}"] = form_field(field, (values or {}).get(field.name))
        for field in self.limits:
            self.fields[f"limits__{field.name}"] = form_field(field, (limits or {}).get(field.name))
        if asks_secret:
            sent = ", ".join(field.label for field in kind.fields if field.secret_goes_to)
            self.fields["secret"] = secret_field(
                label=f"{kind.secret_label}, again",
                help_text=f"Only if you change where it is sent: {sent}. It takes the place of the stored one.",
            )

    @property
    def choice_of_case(self) -> str:
        """The field that decides which settings are shown; empty: all are."""
        return "case" if self.kind.cases else ""

    @property
    def limits(self) -> tuple[Field, ...]:
        return limit_fields() if isinstance(self.kind, Scheme) else ()

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        kind = self.kind
        given = {field.name: cleaned.get(f"{kind.name}__{field.name}") for field in kind.fields}
        named = next((case for case in kind.cases if case.name == cleaned.get("case")), None)
        case = named or kind.case_of(given)
        cleaned["settings"] = case.only(given, kind.fields) if case else given
        for name in case.needs if case else ():
            if not given[name]:
                self.add_error(f"{kind.name}__{name}", "must not be empty in this case")
        limits = {field.name: cleaned.get(f"limits__{field.name}", field.default) for field in self.limits}
        cleaned["limits"] = without_defaults(limits)
        for prefix, check, values in (
            (kind.name, kind.check, cleaned["settings"]),
            ("limits", clean_limits, cleaned["limits"]),
        ):
            try:
                check(values)
            except InvalidSettings as error:
                for name, problem in error.errors.items():
                    field_name = f"{prefix}__{name}"
                    self.add_error(field_name if field_name in self.fields else None, problem)
        return cleaned

    def groups(self) -> list[Group]:
        self._mark_required()
        again = [Group(fields=[self["secret"]])] if "secret" in self.fields else []
        return [Group(fields=[self["enabled"], self["trusted"]]), *self._settings(), *again]

    def _mark_required(self) -> None:
        """The star is that of the page alone: the kind checks its settings itself, and its errors name what is to be entered."""
        needed = self.kind.required.union(*(case.needs for case in self.kind.cases))
        for name in needed:
            self.fields[f"{self.kind.name}__{name}"].required = True

    def _settings(self) -> list[Group]:
        kind = self.kind
        if kind.cases:
            return self._by_cases()
        fields: list[BoundField] = [self[f"{kind.name}__{field.name}"] for field in kind.fields]
        names = {f"{kind.name}__{name}" for name in kind.in_sight}
        more = [field for field in fields if field.name not in names] if names else []
        first = [field for field in fields if field not in more]
        groups = [Group(title="Settings", fields=first)] if first else []
        if more:
            said = self._set_here(more) or ", ".join(str(field.label) for field in more)
            groups.append(Group(title="More", fields=more, folded=True, said=said))
        limits = [self[f"limits__{field.name}"] for field in self.limits]
        if limits:
            note = "Limits of this source, beside those of the installation."
            groups.append(Group(title="Limits", note=note, fields=limits, folded=True, said=self._limits_in_words()))
        return groups

    def _by_cases(self) -> list[Group]:
        """The choice of the case, and the settings of each; a setting of several cases is one field."""
        first = self._of_cases([(case.name, case.fields) for case in self.kind.cases])
        more = self._of_cases([(case.name, case.more) for case in self.kind.cases])
        said = self._set_here(more.fields) or self.kind.more_in_words
        return [
            Group(title="Settings", fields=[self["case"], *first.fields], only=first.only),
            Group(title="More", fields=more.fields, only=more.only, folded=True, said=said),
        ]

    def _of_cases(self, named: Sequence[tuple[str, Sequence[str]]]) -> Group:
        names = merged([fields for _, fields in named])
        bound = {name: self[f"{self.kind.name}__{name}"] for name in names}
        only = {bound[name].name: [case for case, fields in named if name in fields] for name in names}
        return Group(fields=list(bound.values()), only=only)

    def _set_here(self, fields: Sequence[BoundField]) -> str:
        """The values that are not the defaults, in words."""
        return ", ".join(f"{one.label}: {one.value()}" for one in fields if str(one.value()) != str(self._default(one)))

    def _default(self, bound: BoundField) -> Any:
        return next(field.default for field in self.kind.fields if bound.name == f"{self.kind.name}__{field.name}")

    def _limits_in_words(self) -> str:
        set_here = [
            f"{field.label}: {self.fields[f'limits__{field.name}'].initial}"
            for field in self.limits
            if self.fields[f"limits__{field.name}"].initial != field.default
        ]
        return ", ".join(set_here)


class NewSourceForm(SettingsForm):
    """A new source of one kind."""

    choice = forms.CharField(widget=forms.HiddenInput)
    slug = fields.SlugField(max_length=100, label="Name")

    class Media:
        js = (forms.Script("console/source_address.js", defer=True),)

    def __init__(self, *args: Any, kind: Kind[Any], **kwargs: Any) -> None:
        super().__init__(*args, kind=kind, **kwargs)
        self.initial["choice"] = kind.name
        self.fields["slug"].help_text = (
            f"Becomes part of its address: {kind.address('NAME')}. It cannot be changed later."
            if isinstance(kind, Scheme)
            else "Its permanent identifier, used in the API and logs."
        )
        self.fields["secret"] = secret_field(
            label=kind.secret_label,
            help_text=f"{_whose(kind)} You can also enter it later, on the source's page."
            if kind.is_secret_given
            else "Paste the provider's, or leave it empty to generate one, which is shown once.",
        )

    def clean_slug(self) -> str:
        slug: str = self.cleaned_data["slug"]
        if Source.objects.filter(slug=slug).exists():
            raise ValidationError("A source with this slug already exists.")
        return slug

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if secret := cleaned.get("secret"):
            try:
                cleaned["secret"] = self.kind.clean_secret(secret)
            except InvalidSettings as error:
                self.add_error("secret", "; ".join(error.errors.values()))
        return cleaned

    def groups(self) -> list[Group]:
        """The groups of the form in the order of the work: the name makes the address; the steps at the provider need
        the address and give the secret.
        """
        self._mark_required()
        secret = [self["secret"]] if self.kind.needs_secret else []
        steps = Group(sections=list(setup_steps(self.kind, "")))
        return [
            Group(fields=[self["slug"]]),
            steps,
            Group(fields=[*secret, self["enabled"], self["trusted"]]),
            *self._settings(),
        ]


def _whose(kind: Kind[Any]) -> str:
    is_read = isinstance(kind, Runner)
    return "Only if the server requires one." if is_read else "The provider makes it: paste it here."


def merged(lists: Sequence[Sequence[str]]) -> list[str]:
    """All names of the lists, in an order that each of them has."""
    order: list[str] = []
    for names in lists:
        place = 0
        for name in names:
            if name not in order:
                order.insert(place, name)
            place = order.index(name) + 1
    return order


def secret_field(*, label: str, help_text: str) -> forms.Field:
    widget = UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})
    return forms.CharField(required=False, strip=False, widget=widget, label=label, help_text=help_text)


def form_field(field: Field, value: Any) -> forms.Field:
    initial = field.default if value is None else value
    said = explained(field.help_text)
    common: dict[str, Any] = {"label": field.label, "help_text": said, "initial": initial, "required": False}
    if isinstance(field.default, bool):
        return fields.BooleanField(**common)
    if isinstance(field.default, int):
        return _Number(default=field.default, **common)
    if field.choices:
        choices = [(choice, choice) for choice in field.choices]
        return _Choice(default=field.default, choices=choices, **common)
    suggested = field.suggest()
    widget = SuggestingInput(suggested) if suggested else UnfoldAdminTextInputWidget()
    return forms.CharField(strip=False, widget=widget, **common)


class SuggestingInput(UnfoldAdminTextInputWidget):  # type: ignore[misc]
    """A text field that offers values."""

    def __init__(self, suggested: Sequence[str]) -> None:
        super().__init__()
        self.suggested = suggested

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        offers = f"{name}-offers"
        options = format_html_join("", "<option>{}</option>", ((one,) for one in self.suggested))
        field = super().render(name, value, {**(attrs or {}), "list": offers}, renderer)
        return format_html('{}<datalist id="{}">{}</datalist>', field, offers, options)


class _Number(fields.IntegerField):
    """A whole number that is its default if it is left empty."""

    def __init__(self, *, default: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.default = default

    def clean(self, value: Any) -> int:
        number: int | None = super().clean(value)
        return self.default if number is None else number


class _Choice(fields.ChoiceField):
    """A choice that is its default if it is not sent."""

    def __init__(self, *, default: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.default = default

    def clean(self, value: Any) -> str:
        return str(super().clean(value)) or self.default


def settings_of_case(kind: Kind[Any], settings: Mapping[str, Any]) -> Sequence[Field]:
    """The settings that count in the case of these."""
    case = kind.case_of(settings)
    return [field for field in kind.fields if case is None or field.name in (*case.fields, *case.more)]


def kind_of(source: Source) -> Kind[Any] | None:
    """The kind of the source; built-in sources and API tokens have none."""
    return kinds().get(source.kind)
