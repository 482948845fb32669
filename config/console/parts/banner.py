"""The banner that every page of the console shows while queues are paused or agents are stopped."""

from functools import partial
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.safestring import SafeString

from config.console.parts.html import format_html
from config.console.parts.links import link
from config.console.parts.moments import moment
from runs.actions.stop_agents import in_words as agents_in_words
from runs.actions.stop_agents import of_it
from runs.models import AgentStop, Queue
from runs.queues.pause import in_words


def banner(request: HttpRequest) -> dict[str, Any]:
    """A context processor; only the console's base template evaluates it."""
    return {"console_banner": partial(_lines, request)}


def _lines(request: HttpRequest) -> list[SafeString]:
    user = getattr(request, "user", None)
    if user is None or not user.is_active or not user.has_perm("runs.view_worker"):
        return []
    stops = [_stopped(stop) for stop in AgentStop.objects.order_by("agent")]
    if request.path == reverse("admin:runs_queue_processes"):
        return stops  # that page shows the queues in detail
    return [*stops, *(_line(queue) for queue in Queue.objects.filter(paused_at__isnull=False).order_by("name"))]


def _stopped(stop: AgentStop) -> SafeString:
    return format_html(
        "<b>{}</b> since {}, by {}{}. No run{} starts. {}",
        agents_in_words(stop.agent),
        moment(stop.stopped_at),
        stop.stopped_by,
        f": {stop.reason}" if stop.reason else "",
        of_it(stop.agent),
        link(reverse("admin:runs_agentstop_agents"), "Agents"),
    )


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
