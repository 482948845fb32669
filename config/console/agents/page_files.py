"""A checklist, or the instructions of a prompt agent, as a page of text and as a file."""

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse

from config.console.parts import fields
from config.console.parts.dialogs import attempt
from config.console.parts.pages import form_page
from config.console.parts.panel import Panel, acting
from config.console.parts.sections import Notice, Section, Text
from triggers.exceptions import Invalid
from triggers.page_files.edit import Comparison, compare, find_file, link_file, take_file, unlink_file, write_file
from triggers.page_files.pages import ChecklistPage, Page

LONGEST = 250_000  # characters of a page: 100 items of 2,000
ACTS = [
    ("take", "Take the file: it replaces what is here"),
    ("write", "Write the file: what is here replaces it"),
    ("unlink", "Keep it here only: the file stays as it is"),
]


class TextForm(forms.Form):
    number = forms.IntegerField(widget=forms.HiddenInput)
    text = fields.TextField(
        rows=20,
        required=False,
        max_length=LONGEST,
        label="Text of the file",
        help_text="One item a line, each with “- ” in front. Write its interval at the end: “(every 6h)”, “(paused)”, "
        "“(every 1d, paused)”; without one it is due at each run. A longer text goes on in indented lines.",
    )


class LinkForm(forms.Form):
    path = fields.CharField(
        max_length=2000,
        label="Path",
        help_text="Enter a .md or .txt file below one of WAKEFUL_WORK_ROOTS, such as ops/HEARTBEAT.md. Nothing is read or written yet.",
    )


class FileForm(forms.Form):
    seen = forms.CharField(widget=forms.HiddenInput, max_length=100)
    act = fields.RadioField(choices=ACTS, label="Do", help_text="Choose what to replace; the differences stand below.")


def edit_as_text(panel: Panel, request: HttpRequest, checklist: Any, *, back: str) -> HttpResponse:
    """The page on which a checklist is edited as one text."""
    page = ChecklistPage(checklist)
    form = TextForm(request.POST or None, initial={"number": page.number, "text": page.text()})
    if form.is_valid():
        page.number = form.cleaned_data["number"]
        act = partial(page.write, form.cleaned_data["text"], by=acting(request))
        if answer := _attempted(request, form, act, done="Saved.", back=back):
            return answer
    title = f"Checklist of {checklist} as text"
    return form_page(panel, request, form, title=title, submit="Save", back=back, obj=checklist)


def file_page(panel: Panel, request: HttpRequest, page: Page, *, back: str) -> HttpResponse:
    """The page on which people link a page to a file, compare the two, and replace one by the other."""
    title = f"File of {page.owner}"
    row = find_file(page)
    if row is None:
        form: forms.Form = LinkForm(request.POST or None)
        if form.is_valid():
            act = partial(link_file, page, form.cleaned_data["path"], by=acting(request))
            if answer := _attempted(request, form, act, done="Linked. Compare them.", back=request.path):
                return answer
        return form_page(panel, request, form, title=title, submit="Link", back=back, obj=page.owner)
    seen, sections = "unread", list[Section]()
    try:
        found = compare(page, row)
    except ValueError as fault:
        sections = [Notice(text=f"{row.path} cannot be compared here: {fault}.", level="warning")]
    else:
        seen, sections = found.seen, _sections(found)
    form = FileForm(request.POST or None, initial={"seen": seen})
    if form.is_valid():
        chosen = _act(page, form.cleaned_data, acting(request))
        if answer := _attempted(request, form, chosen, done="Done.", back=back):
            return answer
    return form_page(panel, request, form, title=title, submit="Do it", back=back, obj=page.owner, sections=sections)


def _act(page: Page, given: dict[str, Any], by: str) -> Callable[[], object]:
    if given["act"] == "unlink":
        return partial(unlink_file, page, by=by)
    if given["act"] == "take":
        return partial(take_file, page, by=by, seen=given["seen"])
    return partial(write_file, page, by=by, seen=given["seen"])


def _attempted(
    request: HttpRequest, form: forms.Form, act: Callable[[], object], *, done: str, back: str
) -> HttpResponse | None:
    """Call a service. None: the form shows what is wrong."""
    try:
        return attempt(request, act, done=done, back=back)
    except (ValueError, Invalid) as wrong:
        form.add_error(None, f"{wrong}.")
        return None


def _sections(found: Comparison) -> list[Section]:
    level = "good" if found.is_same else "warning"
    sections: list[Section] = [Notice(text=f"{found.path}: {found.state}", level=level)]
    if found.difference:
        note = "Lines with + are only in the file, those with - only here."
        sections.append(Text(title="Differences", text="\n".join(found.difference), note=note))
    sections.append(Text(title="Text of the page here", text=found.page.text()))
    return sections
