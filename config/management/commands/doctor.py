"""Shows what is wrong with this installation and how to fix it."""

from argparse import ArgumentParser
from typing import Any

from django.conf import settings

from config.health.doctor import examine
from runs.management.json_output import JsonOutput


class Command(JsonOutput):
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
        found: list[dict[str, str]] = []
        for finding in examine():
            found.append({"text": finding.text, "fix": finding.fix})
            if not self.as_json:
                self._print(finding.text, finding.fix)
        wrong = sum(bool(finding["fix"]) for finding in found)
        self.answer({"wrong": wrong, "findings": found}, f"{wrong} to fix." if wrong else "Nothing is wrong.")
        if wrong:
            raise SystemExit(1)

    def _print(self, text: str, fix: str) -> None:
        if fix:
            self.stdout.write(self.style.ERROR(f"WRONG  {text}"))
            self.stdout.write(f"       fix: {fix}")
        else:
            self.stdout.write(f"ok     {text}")

    def _list_knobs(self) -> None:
        knobs = [
            {
                "name": knob.name,
                "value": "(set)" if knob.secret and knob.value else _readable(knob.value),
                "default": knob.default,
                "meaning": knob.meaning,
            }
            for knob in settings.KNOBS
        ]
        lines = [
            f"{knob['name']}={knob['value']}\n    {knob['meaning']}. Default: {knob['default'] or '(empty)'}"
            for knob in knobs
        ]
        self.answer(knobs, "\n".join(lines))


def _readable(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(value)
    return str(value)
