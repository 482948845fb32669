"""Checks the links of the documentation, and writes it as static pages."""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from config.documentation.build import broken_links, write
from config.documentation.pages import pages
from runs.management.json_output import JsonOutput


class Command(JsonOutput):
    help = "Check every link of the documentation, and write it as static pages. The stack itself serves it at /docs/."
    requires_system_checks: list[str] = []  # it needs no database

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("folder", nargs="?", type=Path, help="where to write the pages; without it: only check")

    def handle(self, *, folder: Path | None, **options: Any) -> None:
        every = pages()
        if broken := list(broken_links(every)):
            raise CommandError("\n".join(broken))
        if folder is None:
            self.stdout.write(f"{len(every.by_slug)} pages; every link leads somewhere.")
        else:
            self.stdout.write(f"{write(every, folder)} pages in {folder}/index.html")
