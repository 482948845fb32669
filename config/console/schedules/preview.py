"""The preview of a schedule's form before it is saved: the rule in words and the next ten fires."""

from datetime import datetime
from zoneinfo import ZoneInfo

from django.http import HttpRequest
from django.urls import reverse
from django.utils.text import capfirst

from config.console.parts.moments import distance, instant
from config.console.parts.previews import Preview, wrong_with
from config.console.schedules.form import RuleForm
from config.console.schedules.words import in_zone
from triggers.exceptions import RuleError
from triggers.schedules.preview import preview
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy

AHEAD = 10  # fires


def preview_of(form: RuleForm) -> Preview:
    """The preview of a posted or new form; its errors are shown at the fields."""
    said = form.data if form.is_bound else {name: value for name, value in form.initial.items() if value is not None}
    return _preview(RuleForm(said), shows_errors=False)


def preview_asked(request: HttpRequest) -> Preview:
    """The preview while the form is being filled in; it does not need an agent or trigger."""
    return _preview(RuleForm(request.POST), shows_errors=True)


def _preview(form: RuleForm, *, shows_errors: bool) -> Preview:
    url = reverse("admin:triggers_schedule_preview")
    if not form.data.get("when"):
        return Preview(url=url, note="Shows the rule in words and the next ten fires.")
    if not form.is_valid():
        return Preview(url=url, wrong=wrong_with(form) if shows_errors else ())
    return _told(form, url)


def _told(form: RuleForm, url: str) -> Preview:
    rule, policy = form.agreed
    try:
        return preview_of_rule(rule, policy, form.zone, url=url)
    except RuleError as wrong:
        form.refuse(wrong)
        return Preview(url=url, wrong=wrong_with(form))


def preview_of_rule(rule: Rule, policy: SchedulePolicy, zone: ZoneInfo, *, url: str) -> Preview:
    """RuleError: it would never fire."""
    fires = preview(rule, policy, AHEAD)
    # The text may name its zone itself.
    zone = rule.zone if isinstance(rule, Cron) else zone
    return Preview(
        url=url,
        words=capfirst(rule.words),
        headers=(f"Next fires in {zone}", "In your zone", ""),
        rows=[_row(fire, zone) for fire in fires],
    )


def _row(fire: datetime, zone: ZoneInfo) -> tuple[str, str, str]:
    return in_zone(fire, zone), instant(fire), distance(fire)
