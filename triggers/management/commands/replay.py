from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError

from runs.management.each import EachCommand
from runs.management.operator import operator
from triggers.models import Event, Trigger
from triggers.replay import replay


class Command(EachCommand):
    help = "Send events through the dispatcher again: they make new runs."
    noun = "event"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--trigger", metavar="SLUG", help="to this trigger only, instead of all that match")

    def act(self, id: str, *, trigger: str | None = None, **options: Any) -> Mapping[str, Any]:
        replay_id = replay(_event(id), trigger=_trigger(trigger) if trigger else None, by=operator())
        return {"event": id, "trigger": trigger, "replay_id": replay_id}

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['event']} replay {done['replay_id']}"


def _event(id: str) -> Event:
    try:
        return Event.objects.get(pk=id)
    except (Event.DoesNotExist, ValidationError):
        raise CommandError("no such event") from None


def _trigger(slug: str) -> Trigger:
    try:
        return Trigger.objects.get(slug=slug)
    except Trigger.DoesNotExist:
        raise CommandError(f"no such trigger: {slug}") from None
