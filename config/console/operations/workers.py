from typing import ClassVar

from django.contrib import admin
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.http import HttpRequest
from django.template.defaultfilters import pluralize
from django.utils import timezone

from agents.kernel.durations import in_words as span
from config.console.parts.filters import ConditionFilter
from config.console.parts.links import link, listing
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, column, time_column
from config.console.parts.sections import Facts, Notice, Section
from runs.models import Worker
from runs.processes.alive import alive


class StateFilter(ConditionFilter):
    title = "state"
    parameter_name = "state"
    conditions: ClassVar = {
        "open": ("not stopped", Q(stopped_at=None)),
        "alive": ("alive", Q(is_alive=True)),
        "stopped": ("stopped", Q(stopped_at__isnull=False)),
    }


@admin.register(Worker)
class WorkerPanel(Panel):
    """Past and present processes: a restart is a new row."""

    list_display = ("kind", "state", "host_and_pid", "children", "serves", "seen", "started", "stopped")
    list_filter = (StateFilter, "kind")
    ordering = (F("stopped_at").desc(nulls_first=True), "-started_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        rows: QuerySet[Worker] = super().get_queryset(request)
        return rows.annotate(is_alive=Exists(alive().filter(pk=OuterRef("pk"))))

    @column("state", label={"alive": "success", "draining": "info", "unseen": "danger"})
    def state(self, worker: Worker) -> str:
        return state_of(worker)

    @column("process")
    def host_and_pid(self, worker: Worker) -> str:
        return f"{worker.host}:{worker.pid}"

    @column("children")
    def children(self, worker: Worker) -> str:
        return str(worker.concurrency or "–")

    @column("serves")
    def serves(self, worker: Worker) -> str:
        return (
            f"{', '.join(worker.queues)} · {len(worker.agents)} agent{pluralize(len(worker.agents))}"
            if worker.queues
            else "–"
        )

    seen = time_column("seen", "seen_at")
    started = time_column("started", "started_at")
    stopped = time_column("stopped", "stopped_at")

    def sections(self, request: HttpRequest, obj: Worker) -> list[Section]:
        level = {"alive": "good", "draining": "info", "stopped": "info"}.get(state_of(obj), "bad")
        runs = link(listing("runs_run", worker__id__exact=obj.pk), "its runs") if obj.kind == "worker" else ""
        return [
            Notice(text=_in_words(obj), level=level, details=[obj.stopped_reason] if obj.stopped_reason else []),
            Facts(
                rows=[
                    ("Id", obj.pk),
                    ("Process", f"{obj.host}:{obj.pid}"),
                    ("Version", obj.version),
                    ("Children", obj.concurrency),
                    ("Queues", ", ".join(obj.queues)),
                    ("Agents", ", ".join(obj.agents)),
                    ("Started", moment(obj.started_at)),
                    ("Seen", moment(obj.seen_at)),
                    ("Draining since", obj.draining_at and moment(obj.draining_at)),
                    ("Stopped", obj.stopped_at and moment(obj.stopped_at)),
                    ("Runs", runs),
                ]
            ),
        ]


def state_of(worker: Worker) -> str:
    if worker.stopped_at:
        return "stopped"
    if not worker.is_alive:  # type: ignore[attr-defined]  # annotated by the panel
        return "unseen"
    return "draining" if worker.draining_at else "alive"


def _in_words(worker: Worker) -> str:
    match state_of(worker):
        case "stopped":
            return f"This {worker.kind} has stopped."
        case "unseen":
            return f"This {worker.kind} was last seen {span(timezone.now() - worker.seen_at)} ago: dead, frozen or disconnected."
        case "draining":
            return f"This {worker.kind} is stopping: it finishes its current work and starts nothing new."
    return f"This {worker.kind} is alive."
