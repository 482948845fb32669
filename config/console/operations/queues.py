from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse

from config.console.access.audit import entries_of
from config.console.operations.after_restore import restored
from config.console.operations.processes import processes
from config.console.parts import fields
from config.console.parts.dialogs import attempt
from config.console.parts.pages import Group, form_page, render
from config.console.parts.panel import Panel, acting
from config.console.parts.sections import Notice
from runs.exceptions import UnknownQueue
from runs.models import Queue
from runs.queues.names import meant
from runs.queues.pause import EVERY, pause, resume, set_max_running
from runs.queues.state import QueueState, find_queue


class PauseForm(forms.Form):
    reason = fields.CharField(max_length=300, label="Reason", help_text="Shown while the queue is paused.")


class LimitForm(forms.Form):
    max_running = fields.IntegerField(
        required=False,
        min_value=1,
        label="Concurrent runs",
        help_text="Limit the concurrent runs of this queue over all workers. Empty: no limit.",
    )


@admin.register(Queue)
class QueuePanel(Panel):
    """The Processes page, and the actions on its queues."""

    own_pages = {
        "processes": "processes/",
        "restored": "restored/",
        "pause": "<path:name>/pause/",
        "resume": "<path:name>/resume/",
        "limit": "<path:name>/limit/",
    }

    # The Processes page replaces the list and the detail pages.

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return redirect("admin:runs_queue_processes")

    def change_view(self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any) -> HttpResponse:
        return redirect("admin:runs_queue_processes")

    def processes_view(self, request: HttpRequest) -> HttpResponse:
        return render(self, request, "admin/console/processes.html", **processes(request))

    def restored_view(self, request: HttpRequest) -> HttpResponse:
        return render(self, request, "admin/console/plain.html", **restored(request))

    # Actions

    def pause_view(self, request: HttpRequest, name: str) -> HttpResponse:
        queue = self._queue(request, name, "runs.pause_queue")
        form = PauseForm(request.POST or None)
        if form.is_valid():
            reason = form.cleaned_data["reason"]
            act = partial(pause, queue.name, reason=reason, by=acting(request))
            return attempt(request, act, done="Paused.", back=back())
        said = "Events are still accepted and become runs, but no run starts. Running runs finish."
        return self._ask(request, form, queue, title=f"Pause {called(queue)}", submit="Pause", said=said)

    def resume_view(self, request: HttpRequest, name: str) -> HttpResponse:
        queue = self._queue(request, name, "runs.pause_queue")
        if request.method == "POST":
            return attempt(request, lambda: resume(queue.name, by=acting(request)), done="Resumed.", back=back())
        said = (
            f"{queue.ready:,} of its runs are ready and can start immediately." if queue.name != EVERY else RESUME_ALL
        )
        return self._ask(request, forms.Form(), queue, title=f"Resume {called(queue)}", submit="Resume", said=said)

    def limit_view(self, request: HttpRequest, name: str) -> HttpResponse:
        queue = self._queue(request, name, "runs.change_queue")
        if queue.name == EVERY:
            raise Http404("Only a single queue has a limit.")
        form = LimitForm(request.POST or None, initial={"max_running": queue.max_running})
        if form.is_valid():
            limit = form.cleaned_data["max_running"]
            act = partial(set_max_running, queue.name, limit, by=acting(request))
            return attempt(request, act, done="Saved.", back=back())
        said = f"{queue.running} of its runs are running. A lower limit does not stop them."
        return self._ask(request, form, queue, title=f"Limit {called(queue)}", submit="Save", said=said)

    def _queue(self, request: HttpRequest, name: str, permission: str) -> QueueState:
        if not request.user.has_perm(permission):
            raise PermissionDenied
        try:
            return find_queue(meant(name))
        except UnknownQueue as unknown:
            raise Http404(str(unknown)) from None

    def _ask(
        self, request: HttpRequest, form: forms.Form, queue: QueueState, *, title: str, submit: str, said: str
    ) -> HttpResponse:
        groups = [Group(sections=[Notice(text=said)]), Group(fields=list(form.visible_fields()))]
        groups = groups if form.fields else groups[:1]
        log = entries_of("queue", queue.name)
        return form_page(self, request, form, title=title, submit=submit, back=back(), groups=groups, sections=[log])


RESUME_ALL = "Every queue starts its ready runs, except queues that are paused individually."


def called(queue: QueueState) -> str:
    return "all queues" if queue.name == EVERY else f"queue {queue.name}"


def back() -> str:
    return reverse("admin:runs_queue_processes")
