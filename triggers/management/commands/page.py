import sys
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError

from runs.exceptions import RunError
from runs.management.command import BaseCommand
from runs.management.operator import operator
from triggers.exceptions import Invalid
from triggers.page_files.edit import Comparison, compare, file_of, link_file, take_file, unlink_file, write_file
from triggers.page_files.pages import Named, Page

ACTIONS = {
    "show": "print it as a page of text",
    "edit": "replace it by a page of text",
    "link": "name the file below WAKEFUL_WORK_ROOTS that it is kept in, such as HEARTBEAT.md; nothing is read or written yet",
    "compare": "show what differs between it and its file; fails if anything does",
    "take": "replace it by what its file has",
    "write": "replace its file by what is here",
    "unlink": "keep it here only; the file stays",
}


class Command(BaseCommand):
    help = "Checklists, and instructions of prompt agents, as pages of text and as files."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        for action, text in ACTIONS.items():
            one = actions.add_parser(action, help=text)
            one.add_argument("agent", metavar="AGENT")
            one.add_argument("--trigger", default="", metavar="SLUG", help="the checklist of this trigger")
            one.add_argument(
                "--instructions", action="store_true", help="the instructions of a prompt agent instead of a checklist"
            )
            one.add_argument("--by", default="", help="acting user, for the audit log (default: you)")
        actions.choices["edit"].add_argument("file", metavar="FILE", help="a page of text, or - for standard input")
        actions.choices["edit"].add_argument(
            "--number", type=int, help="revision or version that the edit was made from; another one refuses it"
        )
        actions.choices["link"].add_argument("path", metavar="PATH")
        for action in ("take", "write"):
            actions.choices[action].add_argument(
                "--seen", default="", metavar="NAME", help="what `compare` printed last: replace what has changed, too"
            )

    def handle(self, *, action: str, agent: str, trigger: str, instructions: bool, by: str, **given: Any) -> None:
        self.by = by or operator()
        act: dict[str, Callable[..., None]] = {
            "show": self.show, "edit": self.edit, "link": self.link, "compare": self.compare, "take": self.take,
            "write": self.write, "unlink": self.unlink,
        }  # fmt: skip
        try:
            act[action](Named(agent=agent, trigger=trigger, instructions=instructions).page(), **given)
        except (Invalid, RunError, ValueError, OSError) as error:
            raise CommandError(str(error)) from None

    def show(self, page: Page, **given: Any) -> None:
        self.stdout.write(page.text(), ending="")

    def edit(self, page: Page, *, file: str, number: int | None, **given: Any) -> None:
        if number is not None and number != page.number:
            raise CommandError(f"it was edited meanwhile: it has number {page.number}, not {number}; look at it again")
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        self.stdout.write(f"it has number {page.write(text, by=self.by)}")

    def link(self, page: Page, *, path: str, **given: Any) -> None:
        self._report(compare(page, link_file(page, path, by=self.by)))

    def compare(self, page: Page, **given: Any) -> None:
        found = compare(page, file_of(page))
        self._report(found)
        if not found.is_same:
            raise CommandError(f"they differ; what you have seen is called {found.seen}")

    def take(self, page: Page, *, seen: str, **given: Any) -> None:
        self._changed(take_file(page, by=self.by, seen=seen), "took", sign="+")

    def write(self, page: Page, *, seen: str, **given: Any) -> None:
        self._changed(write_file(page, by=self.by, seen=seen), "wrote", sign="-")

    def unlink(self, page: Page, **given: Any) -> None:
        unlink_file(page, by=self.by)
        self.stdout.write("it is kept here only")

    def _report(self, found: Comparison) -> None:
        self.stdout.write("\n".join([f"{found.path}: {found.state}", *found.difference]))

    def _changed(self, found: Comparison, did: str, *, sign: str) -> None:
        self.stdout.write(
            "\n".join([f"{did} {found.path}; what differed (the new lines begin with {sign}):", *found.difference])
        )
