from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from runs.actions.approve import Choice, decide
from runs.api.runs_json import ApprovalSerializer
from runs.management.arguments import json_argument
from runs.management.each import EachCommand
from runs.management.operator import operator


class Command(EachCommand):
    help = "Decide approvals: approve them, approve with other arguments, or deny."
    noun = "approval"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--deny", action="store_true", help="deny it")
        how.add_argument(
            "--arguments", type=json_argument, metavar="JSON", help="approve it with these arguments instead"
        )
        parser.add_argument("--reason", default="", metavar="TEXT", help="record why")
        parser.add_argument("--digest", default="", metavar="HEX", help="refuse unless the approval has this digest")

    def act(self, id: str, *, deny: bool = False, arguments: Any = None, **options: Any) -> Mapping[str, Any]:
        decision: Choice = "deny" if deny else "approve" if arguments is None else "edit"
        given = {name: options[name] for name in ("reason", "digest")}
        return ApprovalSerializer(
            decide(self.id_of(id), decision=decision, arguments=arguments, by=operator(), **given)
        ).data

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['id']} {done['status']}"
