"""Set-up of a source: the choice of its kind, and the steps at its provider."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.utils.html import format_html

from config.console.parts.html import emphasised
from config.console.parts.links import link
from config.console.parts.sections import Cell, Notice, Section, Steps
from config.documentation.console_pages import docs_url
from runs.network.site import LOCAL, site
from triggers.sources.kind import Group, Kind, kinds
from triggers.sources.runner import Runner
from triggers.sources.webhooks.scheme import Scheme

NAME = "-name-"  # no slug: it stands for one in an address


@dataclass(frozen=True, kw_only=True)
class Card:
    """One kind in the list from which an operator chooses; `words` are the words that a search finds."""

    name: str
    label: str
    help_text: str
    words: str


def groups(may_make: Callable[[Kind[Any]], bool]) -> list[tuple[str, list[Card]]]:
    """Every kind that the user may make, under the heading of its group."""
    listed = [(group, [_card(kind) for kind in _sorted(group) if may_make(kind)]) for group in Group]
    return [(str(group), cards) for group, cards in listed if cards]


def _sorted(group: Group) -> list[Kind[Any]]:
    # Kinds that verify nothing stand last.
    found = [kind for kind in kinds().values() if kind.group == group]
    return sorted(found, key=lambda kind: (not kind.is_verified, kind.label.lower()))


def _card(kind: Kind[Any]) -> Card:
    words = f"{kind.name} {kind.label} {kind.help_text} {kind.group}".lower()
    return Card(name=kind.name, label=kind.label, help_text=kind.help_text, words=words)


def address_of(kind: Kind[Any], slug: str, secret: str = "") -> str:
    """The address of a webhook source, as senders reach it; with the secret, if that is a part of it."""
    path = kind.address(slug, secret) if isinstance(kind, Scheme) else ""
    return f"{site()}{path}"


def has_secret_address(kind: Kind[Any]) -> bool:
    return isinstance(kind, Scheme) and kind.address("slug", "secret") != kind.address("slug")


def setup_steps(kind: Kind[Any], slug: str) -> Iterator[Section]:
    """The steps at the provider, and a warning if the address works on this machine only. Without a slug, the form's script
    writes the name that the person enters into the address."""
    steps = [_with_address(step, kind, slug) for step in kind.setup]
    if kind.docs_url:
        steps.append(format_html("See also {}.", link(kind.docs_url, kind.docs_url)))
    steps.append(format_html("{} describes sources of this kind.", link(docs_url(kind.docs), "The documentation")))
    yield Steps(title=f"Set-up: {kind.label}", steps=steps)
    if not (isinstance(kind, Runner) and slug):  # the page of a source that is read has it beside its gaps
        yield Notice(text=kind.gaps.text, level="info" if kind.gaps.are_seen else "warning")
    if any("{url}" in step for step in kind.setup) and _is_local(address_of(kind, slug)):
        yield Notice(
            text="The address works on this machine only. Set WAKEFUL_URL to the address of this site, as senders reach it.",
            level="warning",
        )


def _with_address(step: str, kind: Kind[Any], slug: str) -> Cell:
    before, found, after = step.partition("{url}")
    if not found:
        return before
    before, after = emphasised(before), emphasised(after)
    if slug:
        return format_html("{}<code>{}</code>{}", before, address_of(kind, slug), after)
    begin, _, end = address_of(kind, NAME).partition(NAME)
    return format_html("{}<code>{}<i data-name>name</i>{}</code>{}", before, begin, end, after)


def _is_local(address: str) -> bool:
    host = address.split("://", 1)[1].split("/", 1)[0]
    return not settings.WAKEFUL_URL and host.rpartition(":")[0] in LOCAL
