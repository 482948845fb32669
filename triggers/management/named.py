"""Objects that a command's arguments name."""

from django.core.exceptions import ValidationError
from django.core.management import CommandError

from triggers.models import Event, Schedule, Trigger


def event_named(id: str) -> Event:
    try:
        return Event.objects.select_related("source").get(pk=id)
    except (Event.DoesNotExist, ValidationError):
        raise CommandError("no such event") from None


def trigger_named(slug: str) -> Trigger:
    try:
        return Trigger.objects.get(slug=slug)
    except Trigger.DoesNotExist:
        raise CommandError(f"no such trigger: {slug}") from None


def schedule_named(name: str) -> Schedule:
    """Find it by its name, else by its id."""
    schedules = Schedule.objects.select_related("task", "trigger")
    found = schedules.filter(task__name=name).first()
    if not found and name.isdecimal() and len(name) < 19:
        found = schedules.filter(pk=int(name)).first()
    if not found:
        raise CommandError(f"No such schedule: {name}")
    return found
