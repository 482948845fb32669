from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from runs.management.each import EachCommand
from runs.management.operator import operator
from triggers.management.named import event_named, trigger_named
from triggers.replay import replay


class Command(EachCommand):
    help = "Send events through the dispatcher again: they make new runs."
    noun = "event"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--trigger", metavar="SLUG", help="to this trigger only, instead of all that match")

    def act(self, id: str, *, trigger: str | None = None, **options: Any) -> Mapping[str, Any]:
        replay_id = replay(event_named(id), trigger=trigger_named(trigger) if trigger else None, by=operator())
        return {"event": id, "trigger": trigger, "replay_id": replay_id}

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['event']} replay {done['replay_id']}"
