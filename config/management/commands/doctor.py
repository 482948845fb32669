"""Shows what is wrong with this installation and how to fix it."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand

from config.health.doctor import examine


class Command(BaseCommand):
    help = "Show what is wrong with this installation and how to fix it; exit code 1 if anything is wrong."
    # They are part of the findings; a failed check must not prevent the others.
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--knobs", action="store_true", help="only list every setting: name, value, default, meaning"
        )

    def handle(self, *, knobs: bool, **options: Any) -> None:
        if knobs:
            self._list_knobs()
            return
        wrong = 0
        for finding in examine():
            if finding.fix:
                wrong += 1
                self.stdout.write(self.style.ERROR(f"WRONG  {finding.text}"))
                self.stdout.write(f"       fix: {finding.fix}")
            else:
                self.stdout.write(f"ok     {finding.text}")
        if wrong:
            self.stdout.write(f"{wrong} to fix.")
            raise SystemExit(1)
        self.stdout.write("Nothing is wrong.")

    def _list_knobs(self) -> None:
        for knob in settings.KNOBS:
            value = "(set)" if knob.secret and knob.value else knob.value
            self.stdout.write(
                f"{knob.name}={_readable(value)}\n    {knob.meaning}. Default: {knob.default or '(empty)'}"
            )


def _readable(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(value)
