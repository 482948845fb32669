import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from runs.management.json_output import JsonOutput
from runs.processes import probe


class Command(JsonOutput):
    """Called by `manage.py help` and `call_command`; manage.py calls the probe itself, before Django is loaded."""

    help = probe.HELP
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        probe.add_arguments(parser)

    def handle(self, *, kind: str, pid: int | None, within: float | None, port: int | None, **options: Any) -> None:
        verdict = probe.look(kind, pid=pid, within=within, port=port)
        self.answer(asdict(verdict), verdict.reason)
        if not verdict.alive:
            sys.exit(1)
