import json
from argparse import ArgumentParser
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.exceptions import IllegalState
from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.shadow.shadow import LIMIT, Outcome, Shadow
from triggers.dispatch.shadow import candidates, shadow_event
from triggers.management.last_resort import ending_with_the_process
from triggers.management.named import event_named, trigger_named
from triggers.models import Event, Trigger


class Command(BaseCommand):
    help = (
        "Show what a past event would do with today's code and triggers, in a transaction that is rolled back and without calls "
        "to other services. Sequences may advance. Exit code 1 if nothing could be tried."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("event", metavar="EVENT")
        parser.add_argument(
            "--trigger", metavar="SLUG", help="only this trigger, instead of all that match the event today"
        )
        parser.add_argument(
            "--run", type=UUID, metavar="RUN", help="run whose journal answers calls and waits (default: the newest)"
        )
        parser.add_argument("--by", default="", help="acting user, for the audit log (default: you)")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print a JSON list")

    def handle(
        self, *, event: str, trigger: str | None, run: UUID | None, by: str, as_json: bool, **options: Any
    ) -> None:
        found = event_named(event)
        try:
            triggers = (
                [trigger_named(trigger)] if trigger else [one.trigger for one in candidates(found) if not one.why_not]
            )
            tried = [self._try(found, one, run, by or operator()) for one in triggers]
        except IllegalState as refusal:
            raise CommandError(str(refusal)) from None
        if not tried:
            raise CommandError("No trigger matches this event today. Use --trigger SLUG for the reason.")
        if as_json:
            self.stdout.write(json.dumps([one.dump() for one in tried], cls=JSONEncoder, indent=2))
        else:
            for one in tried:
                self._report(one)

    def _try(self, event: Event, trigger: Trigger, run: UUID | None, by: str) -> Shadow:
        with ending_with_the_process(self, LIMIT):
            return shadow_event(event, trigger, by=by, run_id=run)

    def _report(self, tried: Shadow) -> None:
        self.stdout.write(f"{tried.trigger}: {in_words(tried)} ({tried.seconds:.2f} s; rolled back)")
        for entry in tried.entries:
            self.stdout.write(f"  {entry.key}: {entry.how}")
        for change in tried.changes:
            counts = f"{change.inserted} inserted, {change.updated} updated, {change.deleted} deleted"
            self.stdout.write(f"  {change.table}: {counts}")
        for statement in tried.statements:
            state = f" [{statement.state}]" if statement.state else ""
            self.stdout.write(f"  {statement.sql} {statement.parameters}{state}")
        for name, left in vars(tried.left).items():
            for one in left:
                self.stdout.write(f"  {name}: {one}")
        if tried.traceback:
            self.stdout.write(tried.traceback)


def in_words(tried: Shadow) -> str:
    match tried.outcome:
        case Outcome.SUCCEEDS:
            return f"would succeed with {json.dumps(tried.result, ensure_ascii=False)}"
        case Outcome.FAILS:
            return f"would fail: {tried.error}"
        case Outcome.RETRIES:
            return f"would be retried later: {tried.error}"
    stop = tried.stop
    if stop is None:
        return "stopped"
    arguments = f" {json.dumps(stop.arguments, ensure_ascii=False)}" if stop.arguments is not None else ""
    return f"stopped: {stop.said}{arguments}"
