from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from runs.management.each import EachCommand
from runs.management.operator import operator
from runs.models import Run
from runs.requeue import requeue
from runs.serializers import RunSerializer


class Command(EachCommand):
    help = "Queue failed or cancelled runs again."
    noun = "run"

    def act(self, id: str, **options: Any) -> Mapping[str, Any]:
        try:
            run = requeue(UUID(id), by=operator())
        except (ValueError, Run.DoesNotExist):
            raise CommandError("no such run") from None
        return RunSerializer(run).data

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['id']} {done['status']}"
