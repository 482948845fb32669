from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.core.management.base import CommandError

from runs.actions.approve import Choice, decide
from runs.api.runs_json import ApprovalSerializer
from runs.management.each import EachCommand
from runs.management.json_argument import json_argument
from runs.management.operator import operator
from runs.models import Approval


class Command(EachCommand):
    help = "Approve what runs ask, or deny it."
    noun = "approval"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--deny", action="store_true", help="deny it")
        how.add_argument(
            "--arguments", type=json_argument, metavar="JSON", help="approve it with these arguments instead"
        )
        parser.add_argument("--reason", default="", metavar="TEXT")
        parser.add_argument(
            "--digest", default="", metavar="HEX", help="refuse if it asks for something else than this"
        )

    def act(
        self, id: str, *, deny: bool = False, arguments: Any = None, reason: str = "", digest: str = "", **options: Any
    ) -> Mapping[str, Any]:
        decision: Choice = "deny" if deny else "approve" if arguments is None else "edit"
        try:
            approval_id = UUID(id)
        except ValueError:
            raise CommandError("no such approval") from None
        try:
            decided = decide(
                approval_id, decision=decision, arguments=arguments, reason=reason, digest=digest, by=operator()
            )
        except Approval.DoesNotExist:
            raise CommandError("no such approval") from None
        return ApprovalSerializer(decided).data

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['id']} {done['status']}"
