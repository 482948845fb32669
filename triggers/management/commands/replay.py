import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError

from runs.management.each import EachCommand
from runs.management.operator import operator
from runs.management.time_arguments import since as since_when
from triggers.dispatch.offers import offer_errors
from triggers.dispatch.replay import replay
from triggers.management.named import event_named, trigger_named


class Command(EachCommand):
    help = (
        "Dispatch events again; they start new runs. With --errors: dispatch again all events that ended in an error; an event "
        "that has a run gets no second run."
    )
    noun = "event"
    nargs = "*"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--trigger", metavar="SLUG", help="only to this trigger, instead of all that match")
        parser.add_argument("--errors", action="store_true", help="all events whose dispatch ended in an error")
        parser.add_argument(
            "--since",
            type=since_when,
            metavar="WHEN",
            help="with --errors: only since then, such as 2h or 2026-05-01T08:00Z",
        )

    def handle(
        self, *, ids: Sequence[str], as_json: bool, errors: bool = False, since: datetime | None = None, **options: Any
    ) -> None:
        if not errors:
            if since or not ids:
                raise CommandError("Name events, or give --errors (--since is only for --errors).")
            return super().handle(ids=ids, as_json=as_json, **options)
        if ids:
            raise CommandError("--errors takes no events.")
        slug = options["trigger"]
        count = offer_errors(trigger=trigger_named(slug) if slug else None, since=since, by=operator())
        done = {"trigger": slug, "since": since and since.isoformat(), "events": count}
        self.stdout.write(json.dumps(done) if as_json else f"{count} events are dispatched again, in batches")
        return None

    def act(self, id: str, *, trigger: str | None = None, **options: Any) -> Mapping[str, Any]:
        replay_id = replay(event_named(id), trigger=trigger_named(trigger) if trigger else None, by=operator())
        return {"event": id, "trigger": trigger, "replay_id": replay_id}

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['event']} replay {done['replay_id']}"
