"""Keep a page in a file below WAKEFUL_WORK_ROOTS too: compare the two, take what the file has, or write what is here.

A row holds the digest of the file and the number of the page at the last time that both were the same. What has changed since on the
side that would be replaced is replaced only for a person who names what they have seen: `Comparison.seen`.
"""

import difflib
from dataclasses import dataclass
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from agents.models import Checklist, PageFile
from agents.work_files import WorkFile, place_of, read_work_file, write_work_file
from runs.exceptions import IllegalState
from runs.models.audit import record
from triggers.page_files.pages import Page

ENDINGS = (".md", ".txt")
MOST_LINES = 1_000  # of a difference


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A page and its file. `fault`: why the file is no such page."""

    path: str
    file: WorkFile | None
    page: Page
    is_same: bool
    has_file_changed: bool
    has_page_changed: bool
    loses: str = ""
    fault: str = ""

    @property
    def seen(self) -> str:
        """Names both sides as they are now."""
        return f"{self.file.digest.removeprefix('sha256:')[:16] if self.file else 'none'}-{self.page.number}"

    @property
    def state(self) -> str:
        """In words."""
        if self.file is None:
            return "There is no such file yet: write it."
        if self.fault:
            return f"The file is no such page: {self.fault}."
        if self.is_same:
            return "Both are the same."
        if self.has_file_changed and self.has_page_changed:
            return "Both have changed since they were the same."
        if self.has_file_changed:
            return "The file has changed since they were the same: take it, or write over it."
        return "It has changed here since they were the same: write the file, or take it back."

    @property
    def difference(self) -> list[str]:
        """Lines that only the file has begin with "+", those that only the page here has with "-"."""
        if self.file is None or self.is_same:
            return []
        here = self.page.text(instead_of=self.file.text)
        lines = difflib.unified_diff(here.splitlines(), self.file.text.splitlines(), "here", "file", lineterm="", n=2)
        return list(lines)[:MOST_LINES]


@not_in_atomic_body
def link_file(page: Page, path: str, *, by: str) -> PageFile:
    """Name the file of a page; nothing is read or written yet. ValueError: it may not be; IllegalState: it is another one's."""
    place = place_of(path)
    if not place.path.lower().endswith(ENDINGS):
        raise ValueError(f"{path}: the file of a page ends with {' or '.join(ENDINGS)}")
    with transaction.atomic():
        try:
            with transaction.atomic():
                row, _ = PageFile.objects.update_or_create(
                    **_owner(page), defaults={"path": place.path, "digest": "", "number": 0, "by": by}
                )
        except IntegrityError:
            raise IllegalState(f"{place.path} is the file of another page already.", status="linked") from None
        record(by, "link_file", page.owner, path=place.path)
    return row


@not_in_atomic_body
def unlink_file(page: Page, *, by: str) -> None:
    """Keep the page here only; the file stays as it is."""
    with transaction.atomic():
        row = file_of(page)
        record(by, "unlink_file", page.owner, path=row.path)
        row.delete()


def find_file(page: Page) -> PageFile | None:
    return PageFile.objects.filter(**_owner(page)).first()


def file_of(page: Page) -> PageFile:
    """ValueError: the page is not kept in a file."""
    row = find_file(page)
    if row is None:
        raise ValueError("it is not kept in a file: link it to one first")
    return row


def compare(page: Page, row: PageFile) -> Comparison:
    """Compare the page with its file. ValueError: the file may not be read."""
    file, fault, is_same = read_work_file(row.path), "", False
    if file is not None:
        try:
            is_same = page.is_same(file.text)
        except ValueError as error:
            fault = str(error)
    return Comparison(
        path=row.path,
        file=file,
        page=page,
        is_same=is_same,
        has_file_changed=file is not None and file.digest != row.digest and not is_same,
        has_page_changed=page.number != row.number and not is_same and not page.is_empty(),
        loses=page.loses(file.text) if file is not None else "",
        fault=fault,
    )


@not_in_atomic_body
def take_file(page: Page, *, by: str, seen: str = "") -> Comparison:
    """Replace the page by what its file has. IllegalState: the page was edited since both were the same, and `seen` does not name
    that. ValueError: there is no file, or it is no such page."""
    row = file_of(page)
    found = compare(page, row)
    if found.file is None:
        raise ValueError(f"{found.path} is not there")
    if found.fault:
        raise ValueError(f"{found.path}: {found.fault}")
    _require_seen(found, seen, is_needed=found.has_page_changed, lost="The page here was edited")
    with transaction.atomic():
        number = page.number if found.is_same else page.write(found.file.text, by=by)
        _agree(row, found.file.digest, number, by)
        record(by, "take_file", page.owner, path=found.path, number=number)
    return found


@not_in_atomic_body
def write_file(page: Page, *, by: str, seen: str = "") -> Comparison:
    """Replace the file by the page. IllegalState: the file was edited since both were the same, or the page cannot have all that
    stands in it, and `seen` does not name that. ValueError: it may not be written, or changes at this moment."""
    row = file_of(page)
    found = compare(page, row)
    lost = "The file was edited" if found.has_file_changed else f"The file has {found.loses}"
    is_needed = not found.is_same and (found.has_file_changed or bool(found.loses))
    _require_seen(found, seen, is_needed=is_needed, lost=lost)
    digest = found.file.digest if found.file else ""
    if not found.is_same:
        text = page.text(instead_of=found.file.text if found.file and not found.fault else "")
        digest = write_work_file(
            row.path, text, replaces=digest
        )  # in no transaction, which a slow disk would keep open
    with transaction.atomic():
        _agree(row, digest, page.number, by)
        record(by, "write_file", page.owner, path=found.path, number=page.number)
    return found


def _require_seen(found: Comparison, seen: str, *, is_needed: bool, lost: str) -> None:
    if seen and seen != found.seen:
        raise IllegalState("Another edit came after what you have seen. Compare them again.", status="edited")
    if is_needed and not seen:
        raise IllegalState(
            f"{lost}, which would be lost. Compare them, and then name what you have seen: {found.seen}",
            status="differs",
        )


def _agree(row: PageFile, digest: str, number: int, by: str) -> None:
    """Both are the same now. Not if the page has got another file, or none, meanwhile."""
    agreed = {"digest": digest, "number": number, "by": by, "at": Now()}
    PageFile.objects.filter(pk=row.pk, path=row.path).update(**agreed)


def _owner(page: Page) -> dict[str, Any]:
    return {"checklist" if isinstance(page.owner, Checklist) else "prompt_agent": page.owner}
