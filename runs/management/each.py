"""Commands that do one thing to each of several objects."""

import json
from abc import abstractmethod
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.exceptions import IllegalState


class EachCommand(BaseCommand):
    """Does what it can; each refusal is told on stderr and ends in exit code 1, with `--json` as without."""

    noun: str
    nargs = "+"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("ids", nargs=self.nargs, metavar=self.noun.upper())
        parser.add_argument("--json", action="store_true", dest="as_json", help="print what was done as a JSON list")

    def handle(self, *, ids: Sequence[str], as_json: bool, **options: Any) -> None:
        done: list[Mapping[str, Any]] = []
        refused = 0
        for id in ids:
            try:
                done.append(self.act(id, **options))
            except (IllegalState, ValueError, CommandError) as error:
                self.stderr.write(f"{id}: {error}")
                refused += 1
            else:
                if not as_json:
                    self.stdout.write(self.describe(done[-1]))
        if as_json:
            self.stdout.write(json.dumps(done, cls=JSONEncoder, indent=2))
        if refused:
            raise CommandError(f"{refused} of {len(ids)} refused.")

    @abstractmethod
    def act(self, id: str, **options: Any) -> Mapping[str, Any]:
        """Do it to this one; what it is now. IllegalState, ValueError or CommandError says why not."""

    @abstractmethod
    def describe(self, done: Mapping[str, Any]) -> str:
        """One line about what was done."""
