"""Rules by the sun, which django-celery-beat has rows for."""

from triggers.calendar import Rule, RuleError


def solar_rule(event: str, latitude: float, longitude: float) -> Rule:
    """The rule of a solar row; RuleError where it cannot be carried out."""
    raise RuleError("solar rules are not supported; use a crontab, an interval or a clocked time")
