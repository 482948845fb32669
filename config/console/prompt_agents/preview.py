"""The preview of a new prompt agent's schedule: the rule as text, its next fires, and the missing steps."""

from typing import Any

from django.http import HttpRequest
from django.urls import reverse

from config.console.parts.panel import acting
from config.console.parts.previews import Preview
from config.console.prompt_agents.form import NewForm, WakeForm
from config.console.schedules.preview import preview_of_rule
from triggers.exceptions import RuleError
from triggers.schedules.clock import zone_of
from triggers.schedules.preview import DEFAULT


def preview_of(form: WakeForm) -> Preview:
    """The preview of a posted or new form."""
    url = reverse("admin:agents_promptagent_preview")
    said: dict[str, Any] = {
        name: str(form[name].value() or "") for name in ("when", "tz", "instructions") if name in form.fields
    }
    try:
        rule = form.read_rule(said)
        if form.absence:
            return Preview(url=url, words=f"If it does not come: {form.absence.words}")
        if rule is None:
            return Preview(url=url, note="Shows the schedule in words and its next fires.")
        return preview_of_rule(rule, DEFAULT, zone_of(said["tz"] or "UTC"), url=url)
    except RuleError as wrong:
        return Preview(url=url, wrong=[f"{wrong}."])


def preview_asked(request: HttpRequest) -> Preview:
    """While the form is being filled in."""
    return preview_of(NewForm(request.POST, by=acting(request)))
