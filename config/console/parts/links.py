"""Links between the console's pages, by id: no query is needed to make one."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from config.console.parts.html import shown


def page(noun: str, pk: Any) -> str:
    """URL of one object's page, such as `page("runs_run", run.pk)`."""
    return reverse(f"admin:{noun}_change", args=[pk])


def listing(noun: str, **filters: Any) -> str:
    """URL of a list page, filtered."""
    query = f"?{urlencode(filters)}" if filters else ""
    return reverse(f"admin:{noun}_changelist") + query


def link(url: str, text: Any) -> SafeString:
    return format_html('<a class="text-link" href="{}">{}</a>', url, shown(text))


def counted(url: str, count: int, text: Any) -> SafeString:
    """A number that opens exactly the list that it counts."""
    return format_html('<a class="text-link" data-count="{}" href="{}">{}</a>', count, url, shown(text))


def new_trigger_link(source: str, types: Sequence[str], text: str) -> SafeString:
    """The form of a new trigger that listens to these."""
    return link(
        f"{reverse('admin:triggers_trigger_add')}?{urlencode({'source': source, 'types': ' '.join(types)})}", text
    )


def agent_link(name: str) -> SafeString:
    return link(page("runs_agentstop", name), name)


def run_link(run_id: UUID | str, text: str = "") -> SafeString:
    return link(page("runs_run", run_id), text or short(run_id))


def event_link(event_id: UUID | str, text: str = "") -> SafeString:
    return link(page("triggers_event", event_id), text or short(event_id))


def short(id_: UUID | str) -> SafeString:
    # A UUIDv7 begins with the time, so neighbours differ only near the end.
    return format_html('<code title="{}">…{}</code>', id_, str(id_)[-12:])


def joined(parts: list[Any], separator: str = ", ") -> SafeString:
    return format_html_join(separator, "{}", ((shown(part),) for part in parts))
