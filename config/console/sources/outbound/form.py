"""The form of a subscription, and the dialogs of its page."""

from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.utils import timezone
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextInputWidget

from config.console.parts import fields
from config.console.parts.pages import Group
from config.console.parts.service_form import ServiceForm
from triggers.models import Subscription
from triggers.outbound.secrets import GRACE

SECRET_OF_RECEIVER = "Enter the receiver's secret: whsec_… Empty: a secret is generated, and shown once."  # noqa: S105
AGO = [("1h", "the last hour"), ("1d", "the last day"), ("7d", "the last week"), ("", "ever")]
AGES = {"1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7)}


class Globs(fields.ExpandableField):
    """Words, one per line or separated by commas."""

    def clean(self, value: Any) -> list[str]:
        return str(super().clean(value)).replace(",", " ").split()

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(value) if isinstance(value, list) else value


class SubscriptionForm(ServiceForm):
    url = forms.CharField(
        label="URL",
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="Enter the receiver's address, e.g. https://example.com/hooks. It is stored encrypted.",
    )
    enabled = fields.BooleanField(
        required=False,
        initial=True,
        help_text="Turn off to send nothing. Waiting deliveries then fail, and may be redelivered.",
    )
    types = Globs(
        label="Event types",
        help_text="Enter one per line, e.g. <code>invoice.paid</code>, <code>invoice.*</code>, or <code>*</code> for all.",
    )
    sources = Globs(
        required=False,
        help_text="Enter one per line, e.g. <code>stripe</code> or <code>shop-*</code>. Empty: events of any source.",
    )
    filter = fields.ExpandableField(
        required=False,
        help_text="Enter a CEL expression, e.g. <code>event.data.amount &gt; 100</code>. Empty: every event of these types.",
    )

    def __init__(self, data: Any = None, *, subscription: Subscription | None = None) -> None:
        names = ("enabled", "types", "sources", "filter")
        super().__init__(data, initial={name: getattr(subscription, name) for name in names} if subscription else {})
        if subscription is not None:
            url = self.fields["url"]
            url.required, url.help_text = False, f"Empty: it stays {subscription.address}."

    def values(self) -> dict[str, Any]:
        values = {name: self.cleaned_data[name] for name in ("enabled", "types", "sources", "filter")}
        return {**values, "url": self.cleaned_data["url"]} if self.cleaned_data["url"] else values

    def groups(self) -> list[Group]:
        return [
            Group(fields=[self["url"], self["enabled"]]),
            Group(title="Which events", fields=[self["types"], self["sources"], self["filter"]]),
        ]


class NewSubscriptionForm(SubscriptionForm):
    slug = fields.CharField(max_length=100, help_text="Permanent identifier, used in the API and logs.")
    secret = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text=SECRET_OF_RECEIVER,
    )

    def groups(self) -> list[Group]:
        where, which = super().groups()
        return [Group(fields=[self["slug"], *where.fields, self["secret"]]), which]


class RotateForm(BaseDialogForm):  # type: ignore[misc]
    hours = fields.IntegerField(
        min_value=0,
        max_value=24 * 30,
        initial=int(GRACE / timedelta(hours=1)),
        label="Old secret signs as well for (hours)",
        help_text="Allow time to change the secret at the receiver. Use 0 if the old secret leaked.",
    )

    @property
    def grace(self) -> timedelta:
        return timedelta(hours=self.cleaned_data["hours"])


class RedeliverForm(BaseDialogForm):  # type: ignore[misc]
    since = fields.RadioField(choices=AGO, initial="1d", required=False, label="That failed in")

    @property
    def from_then(self) -> datetime:
        age = AGES.get(self.cleaned_data["since"])
        return timezone.now() - age if age else datetime.fromtimestamp(0, tz=timezone.get_current_timezone())
