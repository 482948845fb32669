"""A page: a Markdown file as HTML, with its headings and links."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

# Without HTML: what stands in angle brackets is text.
MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
ELSEWHERE = re.compile(r"[a-z]+:")  # a link with a scheme

Resolve = Callable[
    [Path, str], str
]  # the file that a link stands in, and its target, as the address of a page; "": there is none


class Heading(NamedTuple):
    level: int
    anchor: str
    title: str
    line: int


class Link(NamedTuple):
    target: str
    anchor: str


def anchor_of(title: str) -> str:
    """The anchor of a heading, equal to GitHub's, so that a link leads to the same place in both."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


@dataclass(frozen=True)
class Page:
    slug: str  # "" is the first page
    file: Path

    @cached_property
    def source(self) -> str:
        return self.file.read_text(encoding="utf-8")

    @cached_property
    def _tokens(self) -> list[Token]:
        return MARKDOWN.parse(self.source)

    @cached_property
    def headings(self) -> Sequence[Heading]:
        found = []
        for token, inline in zip(self._tokens, self._tokens[1:], strict=False):
            if token.type == "heading_open" and token.map:
                title = "".join(part.content for part in inline.children or [])
                found.append(Heading(int(token.tag[1]), anchor_of(title), title, token.map[0]))
        return found

    @property
    def title(self) -> str:
        return self.headings[0].title if self.headings else self.slug

    @property
    def chapters(self) -> Sequence[Heading]:
        return [heading for heading in self.headings if heading.level == 2]

    @cached_property
    def links(self) -> Sequence[Link]:
        """Links to other files, and to headings."""
        targets = [
            str(part.attrGet("href"))
            for token in self._tokens
            for part in token.children or []
            if part.type == "link_open"
        ]
        split = [target.partition("#") for target in targets if not ELSEWHERE.match(target)]
        return [Link(target, anchor) for target, _, anchor in split]

    def html(self, resolve: Resolve) -> SafeString:
        """The page, with links to files as `resolve` makes them of their targets. A link that leads nowhere is text."""
        tokens = MARKDOWN.parse(self.source)
        anchors = iter(self.headings)
        for token in tokens:
            if token.type == "heading_open":
                token.attrSet("id", next(anchors).anchor)
            for part in token.children or []:
                if part.type == "link_open":
                    self._lead(part, resolve)
        html = str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))
        # A wide table scrolls by itself, also with the keyboard, and not the page.
        html = html.replace("<table>", '<div class="wide" tabindex="0"><table>').replace("</table>", "</table></div>")
        return mark_safe(html)  # noqa: S308  (our own files, rendered without HTML of theirs)

    def _lead(self, link: Token, resolve: Resolve) -> None:
        target, hash, anchor = str(link.attrGet("href")).partition("#")
        if ELSEWHERE.match(target):
            link.attrSet("rel", "noopener")
        elif target and (address := resolve(self.file, target)):
            link.attrSet("href", f"{address}{hash}{anchor}")
        elif target:
            link.attrs = {}
