"""`--json` for every command: standard output is exactly one JSON document, also where the command fails.

- What the command prints is collected. If it is a JSON object or list, it is the document; else it is `{"output": [its lines]}`.
- A command that fails before it has printed a document prints `{"error": its message}`, with its lines up to there as `output`.
- Messages stay on standard error, and the exit code is the same as without `--json`: 0 done; 1 failed, refused some of it, or
  found something; 2 the command line is wrong.
"""

import json
import sys
from argparse import SUPPRESS, ArgumentParser, _SubParsersAction
from io import StringIO
from typing import Any

from django.core.management import base
from django.core.serializers.json import DjangoJSONEncoder

WRONG_COMMAND_LINE = 2  # as argparse has it


class JsonOutput(base.BaseCommand):
    """Adds `--json` to a command that has none, and keeps the promise of this module for all."""

    is_process = False  # it runs until it is stopped, and prints a log: that is no document
    as_json = False
    _begun = False
    _is_wanted = False

    def answer(self, document: Any, text: str) -> None:
        """Print what was done: the document with `--json`, else the text."""
        self.stdout.write(json.dumps(document, cls=DjangoJSONEncoder, indent=2) if self.as_json else text)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> base.CommandParser:
        if self._is_wanted:
            self._called_from_command_line = False  # the parser raises its errors, and does not end the process
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        if not self.is_process:
            _offer(parser, default=False)
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        self._is_wanted = not self.is_process and "--json" in argv[2:]
        try:
            super().run_from_argv(argv)
        except base.CommandError as error:
            if self._begun or not self._is_wanted:
                raise
            message = str(error).removeprefix("Error: ")
            self.stdout.write(_document("", message))
            self.stderr.write(message)
            sys.exit(WRONG_COMMAND_LINE)

    def execute(self, *args: Any, **options: Any) -> str | None:
        self._begun, self.as_json = True, bool(options.get("as_json"))
        if not self.as_json:
            return super().execute(*args, **options)
        output = base.OutputWrapper(options.get("stdout") or sys.stdout)
        collected, error = StringIO(), ""
        try:
            return super().execute(*args, **{**options, "stdout": collected, "no_color": True, "force_color": False})
        except base.CommandError as failure:
            error = str(failure)
            raise
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
            raise
        except KeyboardInterrupt:
            error = "interrupted"
            raise
        finally:
            output.write(_document(collected.getvalue().strip(), error))


def _offer(parser: ArgumentParser, *, default: Any) -> None:
    """Add the option to the parser and to those of its actions; one of an action does not undo one that stands before it."""
    if (own := parser._option_string_actions.get("--json")) is None:
        own = parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")
    own.default = default
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for one in action.choices.values():
                _offer(one, default=SUPPRESS)


def _document(text: str, error: str) -> str:
    if _is_document(text):
        return text
    found: dict[str, Any] = {"error": error} if error else {}
    if text or not error:
        found["output"] = text.splitlines()
    return json.dumps(found, indent=2)


def _is_document(text: str) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except ValueError:
        return False
