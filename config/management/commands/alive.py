import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from runs.processes import probe


class Command(BaseCommand):
    """Called by `manage.py help` and `call_command`; manage.py calls the probe itself, before Django is loaded."""

    help = probe.HELP
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        probe.add_arguments(parser)

    def handle(
        self, *, kind: str, pid: int | None, within: float | None, port: int | None, json: bool, **options: Any
    ) -> None:
        sys.exit(probe.tell(kind, pid=pid, within=within, port=port, as_json=json))
