"""The form of a recipient: its address and its rules. The services check them; their faults stand at the fields."""

from typing import Any

from django import forms
from django.db.models import QuerySet
from unfold.widgets import UnfoldAdminTextInputWidget

from config.console.parts import fields
from config.console.parts.duration_field import DurationField
from config.console.parts.pages import Group
from config.console.parts.service_form import ServiceForm
from runs.models import Notification, Recipient

ADDRESSES = (
    "mailto:ops@example.com, https://host/hook#whsec_…, slack+https://host/path, inbox:user, or a URL of apprise."
)
FROM_SETTINGS = ("name", "address", "active")


class RecipientForm(ServiceForm):
    name = fields.CharField(help_text="Enter what agents call it in to=, e.g. ops.")
    address = forms.CharField(widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}), help_text=ADDRESSES)
    active = fields.BooleanField(required=False, initial=True, help_text="Turn off to send it nothing.")
    gets_all = fields.BooleanField(
        required=False, initial=True, label="Gets all", help_text="It gets notifications that name no recipient."
    )
    least_urgency = fields.ChoiceField(
        choices=Notification.Urgency.choices,
        label="Least urgency",
        help_text="Less urgent notifications are suppressed.",
    )
    repeat_after = DurationField(
        label="Repeat after",
        help_text="The same text about the same topic is suppressed for this long, e.g. 1d.",
    )
    zone = fields.CharField(label="Time zone", help_text="Of its hours, e.g. Europe/Vienna.")
    quiet_from = forms.TimeField(
        required=False,
        label="Quiet from",
        widget=UnfoldAdminTextInputWidget(attrs={"type": "time"}),
        help_text="From this time of day on, only urgent notifications are sent. Empty: no quiet hours.",
    )
    quiet_until = forms.TimeField(
        required=False,
        label="Quiet until",
        widget=UnfoldAdminTextInputWidget(attrs={"type": "time"}),
        help_text="Held notifications are sent at this time.",
    )
    spacing = DurationField(
        help_text="Least time between two messages, e.g. 30m. Notifications in between are sent as one message. 0s: none."
    )
    digest_hour = fields.IntegerField(
        required=False,
        min_value=0,
        max_value=23,
        label="Daily digest",
        help_text="Hour of the day at which everything is sent as one message. Empty: at once.",
    )
    second = fields.ModelChoiceField(
        Recipient.objects.none(),
        required=False,
        label="Second route",
        empty_label="none",
        help_text="Another recipient, which gets notifications that cannot be delivered to this one.",
    )
    second_after = DurationField(
        label="Second route after",
        help_text="After this time the second route is taken instead of more tries, e.g. 10m.",
    )

    def __init__(self, data: Any = None, *, recipient: Recipient | None = None) -> None:
        super().__init__(data, initial=_values(recipient or Recipient()))
        others: QuerySet[Recipient] = Recipient.objects.exclude(pk=recipient.pk if recipient else 0)
        self.fields["second"].queryset = others  # type: ignore[attr-defined]
        if recipient is None:
            return
        address = self.fields["address"]
        address.required, address.help_text = False, f"Empty: it stays {recipient.address}. Or enter {ADDRESSES}"
        self.initial["address"] = ""
        for name in FROM_SETTINGS if recipient.is_from_settings else ():
            del self.fields[name]
        # Only what this person changed is saved, so an edit that another one made meanwhile stays.
        for field in self.fields.values():
            field.show_hidden_initial = True

    def changes(self) -> dict[str, Any]:
        changed = {name: self.cleaned_data[name] for name in self.changed_data}
        return changed if changed.get("address") else {name: changed[name] for name in changed if name != "address"}

    @property
    def groups(self) -> list[Group]:
        where = [name for name in ("name", "address", "active") if name in self.fields]
        return [
            *([Group(fields=[self[name] for name in where])] if where else []),
            Group(title="Which notifications", fields=[self[name] for name in ("gets_all", "least_urgency")]),
            Group(
                title="When",
                note="Urgent notifications pass quiet hours, spacing and the digest.",
                fields=[self[name] for name in ("zone", "quiet_from", "quiet_until", "spacing", "digest_hour")],
            ),
            Group(title="Repeats", fields=[self["repeat_after"]]),
            Group(title="If it cannot be reached", fields=[self["second"], self["second_after"]]),
        ]


def _values(recipient: Recipient) -> dict[str, Any]:
    return {name: getattr(recipient, name) for name in RecipientForm.base_fields}
