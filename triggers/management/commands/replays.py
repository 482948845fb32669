import json
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.exceptions import IllegalState
from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.api.replays import ReplayDetailSerializer
from triggers.events.search import Search
from triggers.models import Replay
from triggers.replays.control import cancel_replay, pause_replay, resume_replay

ACTIONS = {"pause": pause_replay, "resume": resume_replay, "cancel": cancel_replay}
SHOWN = 20


class Command(BaseCommand):
    help = f"List the newest {SHOWN} replays of events, or pause, resume or cancel one. `manage.py replay` starts them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("action", nargs="?", choices=ACTIONS)
        parser.add_argument("id", nargs="?", metavar="REPLAY")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print a JSON list")

    def handle(self, *, action: str | None, id: str | None, as_json: bool, **options: Any) -> None:
        if action and not id:
            raise CommandError(f"Name the replay to {action}.")
        shown = [self._act(action, id)] if action and id else Replay.objects.order_by("-id")[:SHOWN]
        if as_json:
            self.stdout.write(json.dumps(ReplayDetailSerializer(shown, many=True).data, cls=JSONEncoder, indent=2))
            return
        for replay in shown:
            what = Search.load(replay.search)
            self.stdout.write(f"{replay.pk} {replay.status} {replay.taken}/{replay.total} at {replay.rate:g}/s: {what}")

    def _act(self, action: str, id: str) -> Replay:
        try:
            return ACTIONS[action](Replay.objects.get(pk=id), operator())
        except (Replay.DoesNotExist, ValidationError):
            raise CommandError(f"No such replay: {id}") from None
        except IllegalState as error:
            raise CommandError(str(error)) from None
