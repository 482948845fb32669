from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from runs.management.command import BaseCommand
from runs.management.operator import operator
from runs.models.audit import record_about
from runs.queues.unknown_tasks import Kept, discard, kept, put_back


class Command(BaseCommand):
    help = (
        "List the messages of Celery tasks that no worker here knows, put them back into their queues, or discard them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("do", nargs="?", choices=("list", "put-back", "discard"), default="list")
        parser.add_argument("--task", metavar="NAME", help="messages of this task only")
        parser.add_argument(
            "--queue", metavar="NAME", help="put them into this queue instead of the one they came from"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print a JSON list")

    def handle(self, *, do: str, task: str | None, queue: str | None, **options: Any) -> None:
        found = [one for one in kept() if task in (None, one.task)]
        verb = {"put-back": "put back ", "discard": "discarded "}.get(do, "")
        for one in found:
            if do == "put-back":
                self._put_back(one, queue)
            elif do == "discard":
                discard(one)
            if do != "list":
                record_about(operator(), do.replace("-", "_"), "unknown_task", one.task, queue=one.queue, at=one.at)
            if not self.as_json:
                self.stdout.write(f"{verb}{one.task} of {one.at}, from the queue {one.queue}")
        if self.as_json or not found:
            self.answer([_as_json(one) for one in found], "No message is kept.")

    def _put_back(self, one: Kept, queue: str | None) -> None:
        try:
            put_back(one, queue)
        except Exception as error:
            # Each broker's client has errors of its own; what was put back before stays so.
            raise CommandError(f"The broker did not take {one.task}: {error}. It is still kept.") from None


def _as_json(one: Kept) -> dict[str, Any]:
    return {"at": one.at, "task": one.task, "queue": one.queue, "headers": one.message["headers"]}
