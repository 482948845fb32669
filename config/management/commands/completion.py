from argparse import ArgumentParser
from typing import Any

from config.management.shell_completion import SHELLS, places_of_commands
from runs.management.json_output import JsonOutput


class Command(JsonOutput):
    help = "Print a script by which a shell completes commands, options and choices: put it where your shell reads such scripts."
    requires_system_checks: list[str] = []  # it needs no database

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("shell", choices=SHELLS, help="such as bash: source <(wakeful completion bash)")

    def handle(self, *, shell: str, **options: Any) -> None:
        self.stdout.write(SHELLS[shell](list(places_of_commands())))
