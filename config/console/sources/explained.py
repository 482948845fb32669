"""Help texts of settings: words of the field lead to the glossary."""

import re

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

from config.documentation.console_pages import docs_url

# Each stands in docs/glossary.md, in the section on sources.
WORDS = ("CEL", "Fingerprint", "Glob", "Hysteresis", "Lookup", "Poison", "Slot", "Slug", "Sweep", "TRUNCATE")
FOUND = re.compile(rf"\b({'|'.join(WORDS)})s?\b", re.IGNORECASE)


def explained(text: str) -> SafeString:
    """The text as HTML, with a link at the first of each word."""
    seen: set[str] = set()

    def linked(match: re.Match[str]) -> str:
        word = match[1].lower()
        if word in seen:
            return match[0]
        seen.add(word)
        return format_html(
            '<a class="text-link console-word" href="{}">{}</a>', docs_url("glossary#sources-and-metrics"), match[0]
        )

    # Escaped first: what is replaced are words of letters, which escaping leaves as they are.
    return mark_safe(FOUND.sub(linked, escape(text)))  # noqa: S308
