"""The banner that every page of the console shows while queues are paused."""

from functools import partial
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from config.console.parts.links import link
from config.console.parts.moments import moment
from runs.models import Queue
from runs.queues.pause import in_words


def banner(request: HttpRequest) -> dict[str, Any]:
    """A context processor; only the console's base template asks for its value."""
    return {"console_banner": partial(_lines, request)}


def _lines(request: HttpRequest) -> list[SafeString]:
    user = getattr(request, "user", None)
    if user is None or not user.is_active or not user.has_perm("runs.view_worker"):
        return []
    if request.path == reverse("admin:runs_queue_processes"):
        return []  # that page shows it in detail
    return [_line(queue) for queue in Queue.objects.filter(paused_at__isnull=False).order_by("name")]


def _line(queue: Queue) -> SafeString:
    return format_html(
        "<b>{}</b> since {}, by {}{}. Events are accepted and become runs, but no run starts. {} · {}",
        in_words(queue.name),
        moment(queue.paused_at),
        queue.paused_by,
        f": {queue.paused_reason}" if queue.paused_reason else "",
        link(reverse("admin:runs_queue_processes"), "Processes"),
        link(reverse("admin:runs_queue_restored"), "After a restore"),
    )
