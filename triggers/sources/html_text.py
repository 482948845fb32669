"""HTML from outside as text."""

import re

from agents.guards.foreign_text import storable_text

MOST = 500_000  # characters that are converted; html-text is linear in them
TAG = re.compile(r"<[^<>]*>")


def html_to_text(html: str) -> str:
    """The text of an HTML document or fragment, with lines where a reader sees them, and without the targets of links."""
    from html_text import extract_text  # lxml; not for processes that read no HTML

    html = storable_text(html[:MOST])
    try:
        text: str = extract_text(html)
    except Exception:  # lxml and its cleaner raise what they like on broken trees
        text = ""
    # The parser drops what is nested deeper than 256 levels.
    return text or " ".join(TAG.sub(" ", html).split())
