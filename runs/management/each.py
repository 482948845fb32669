"""Commands that act on each of several objects."""

import json
from abc import abstractmethod
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from django.core.exceptions import ObjectDoesNotExist
from django.core.management.base import CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.exceptions import IllegalState
from runs.management.command import BaseCommand


class EachCommand(BaseCommand):
    """Acts on every object that it can. Prints each refusal to stderr, and then exits with 1."""

    noun: str
    nargs = "+"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("ids", nargs=self.nargs, metavar=self.noun.upper())
        parser.add_argument("--json", action="store_true", dest="as_json", help="print what was done as a JSON list")

    def handle(self, *, ids: Sequence[str], as_json: bool, **options: Any) -> None:
        done: list[Mapping[str, Any]] = []
        refused = 0
        for text in ids:
            try:
                done.append(self.act(text, **options))
            except ObjectDoesNotExist:
                self.stderr.write(f"{text}: no such {self.noun}")
                refused += 1
            except (IllegalState, ValueError, CommandError) as error:
                self.stderr.write(f"{text}: {error}")
                refused += 1
            else:
                if not as_json:
                    self.stdout.write(self.describe(done[-1]))
        if as_json:
            self.stdout.write(json.dumps(done, cls=JSONEncoder, indent=2))
        if refused:
            raise CommandError(f"{refused} of {len(ids)} refused.")

    def id_of(self, text: str) -> UUID:
        try:
            return UUID(text)
        except ValueError:
            raise CommandError(f"no such {self.noun}") from None

    @abstractmethod
    def act(self, id: str, **options: Any) -> Mapping[str, Any]:
        """Act on this object; return it as JSON. IllegalState, ValueError, CommandError or ObjectDoesNotExist refuses."""

    @abstractmethod
    def describe(self, done: Mapping[str, Any]) -> str:
        """The line of output for one object."""
