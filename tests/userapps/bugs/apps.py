"""Sends errors to Sentry, with the code that docs/observe.md prints."""

import os
import re
from pathlib import Path

from django.apps import AppConfig

PAGE = Path(__file__).parents[3] / "docs" / "observe.md"


class BugsConfig(AppConfig):
    name = "bugs"

    def ready(self) -> None:
        [printed] = re.findall(r"```python\n([^`]+sentry_sdk\.init[^`]+)```", PAGE.read_text())
        assert 'dsn="…"' in printed
        exec(printed.replace('dsn="…"', f"dsn={os.environ['BUGS_DSN']!r}"), {})
