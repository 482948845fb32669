"""Replays of many events: the list, a replay's progress, and its buttons."""

from collections.abc import Mapping

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from config.console.access.audit import entries_of
from config.console.events.replay_form import ReplayForm, preview_of, replay_page
from config.console.parts.dialogs import dialog
from config.console.parts.links import joined, link, page
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, column, time_column
from config.console.parts.previews import respond
from config.console.parts.progress import Bar, Part
from config.console.parts.sections import Facts, Notice, Section, Table
from config.console.parts.service_button import service_button
from runs.models import Run
from triggers.events.search import Search
from triggers.models import Replay
from triggers.replays.control import cancel_replay, pause_replay, resume_replay
from triggers.replays.progress import Progress, progress, triggers_of
from triggers.replays.start import EARLIEST

COLOURS = {
    "running": "primary",
    "paused": "warning",
    "cancelling": "warning",
    "cancelled": "default",
    "done": "success",
}
RUNS_SHOWN = 50
BUTTONS = {"pause": {"running"}, "resume": {"paused"}, "cancel": {"running", "paused"}}
PAUSE = dialog("Pause this replay?", "No more events are taken. Runs that were started go on.", "Pause")
RESUME = dialog("Resume this replay?", "It goes on at its rate.", "Resume")
CANCEL = dialog(
    "Cancel this replay?",
    "No more events are taken, and runs that have not started are cancelled. Runs that have started continue.",
    "Cancel the replay",
)


@admin.register(Replay)
class ReplayPanel(Panel):
    """Replays of many events, running and ended."""

    list_display = ("events", "to", "state", "done", "pace", "asked", "ended")
    list_filter = ("status",)
    search_fields = ("by",)
    search_help_text = "account"
    ordering = ("-id",)
    actions_detail = ("pause", "resume", "cancel")
    own_pages = {"preview": "preview/"}

    @column("events")
    def events(self, replay: Replay) -> str:
        return str(Search.load(replay.search))

    @column("triggers")
    def to(self, replay: Replay) -> str:
        return f"{len(replay.triggers)} chosen" if replay.triggers else "all that match"

    @column("state", label=COLOURS)
    def state(self, replay: Replay) -> str:
        return replay.status

    @column("events taken")
    def done(self, replay: Replay) -> str:
        return f"{replay.taken:,} of {replay.total:,}"

    @column("rate")
    def pace(self, replay: Replay) -> str:
        return f"{replay.rate:g} per second"

    asked = time_column("created", "created_at")
    ended = time_column("ended", "ended_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("triggers.replay_event")

    def new(self, request: HttpRequest) -> HttpResponse:
        return replay_page(self, request)

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return respond(request, preview_of(ReplayForm(request, request.POST), request))

    @service_button("Pause", "triggers.replay_event", PAUSE, icon="pause", done="Paused.")
    def pause(self, object_id: str, by: str) -> None:
        pause_replay(get_object_or_404(Replay, pk=object_id), by=by)

    @service_button("Resume", "triggers.replay_event", RESUME, icon="play_arrow", variant="primary", done="Resumed.")
    def resume(self, object_id: str, by: str) -> None:
        resume_replay(get_object_or_404(Replay, pk=object_id), by=by)

    @service_button("Cancel", "triggers.replay_event", CANCEL, icon="cancel", variant="danger", done="Cancelled.")
    def cancel(self, object_id: str, by: str) -> None:
        cancel_replay(get_object_or_404(Replay, pk=object_id), by=by)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        status = Replay.objects.filter(pk=object_id).values_list("status", flat=True).first()
        return {name: status in statuses for name, statuses in BUTTONS.items()}

    def sections(self, request: HttpRequest, obj: Replay) -> list[Section]:
        now = progress(obj)
        return [_notice(obj, now), _bar(obj, now), _facts(obj, now), _runs(obj), entries_of("replay", obj.pk)]


def _notice(replay: Replay, now: Progress) -> Notice:
    if now.obstacle:
        return Notice(text=f"Not progressing: {now.obstacle}.", level="warning")
    skipped = [
        f"{count:,} were skipped: {why}."
        for count, why in (
            (replay.without_payload, "retention or erasure removed their payload"),
            (replay.unheard, "none of the triggers listens to them"),
        )
        if count
    ]
    match replay.status:
        case "running":
            return Notice(text=f"Running at {replay.rate:g} events per second.", details=skipped)
        case "paused":
            return Notice(
                text="Paused: no more events are taken until it is resumed.", level="warning", details=skipped
            )
        case "cancelling":
            return Notice(text="Cancelled: runs that have not started are being cancelled.", level="warning")
        case "cancelled":
            return Notice(text="Cancelled.", level="warning", details=skipped)
    level = "warning" if replay.without_payload else "good"
    events = "event was" if replay.dispatched == 1 else "events were"
    return Notice(text=f"Done: {replay.dispatched:,} {events} dispatched again.", level=level, details=skipped)


def _bar(replay: Replay, now: Progress) -> Bar:
    counts = [
        ("succeeded", "dispatched", now.dispatched - now.waiting),
        ("open", "waiting for dispatch", now.waiting),
        ("refused", "skipped, without payload", now.without_payload),
        ("there", "skipped, no trigger listens", now.unheard),
    ]
    total = max(now.total, now.taken, 1)
    parts = [
        Part(name=name, words=words, count=count, percent=round(100 * count / total, 2))
        for name, words, count in counts
        if count > 0
    ]
    return Bar(
        title="Progress", total=now.total, ended=now.taken, parts=parts, goes_on=replay.status in Replay.UNDERWAY
    )


def _facts(replay: Replay, now: Progress) -> Facts:
    triggers = [
        link(page("triggers_trigger", id), slug) if slug else f"{id} (deleted)" for id, slug in triggers_of(replay)
    ]
    return Facts(
        rows=[
            ("Events", str(Search.load(replay.search))),
            ("Received from", "the oldest" if replay.start == EARLIEST else moment(replay.start)),
            ("Received before", moment(replay.end)),
            ("Triggers", joined(triggers) if triggers else "all that match"),
            ("Events per second", f"{replay.rate:g}"),
            ("Priority", replay.priority),
            ("Runs", ", ".join(f"{count:,} {status}" for status, count in sorted(now.runs.items())) or "none"),
            ("Replay id", replay.pk),
            ("Created", moment(replay.created_at)),
            ("By", replay.by),
            ("Ended", replay.ended_at and moment(replay.ended_at)),
        ]
    )


def _runs(replay: Replay) -> Table:
    columns = ("id", "agent", "trigger", "status", "created_at")
    runs = list(Run.objects.filter(replay_id=replay.pk).only(*columns).order_by("-seq")[: RUNS_SHOWN + 1])
    return Table(
        title="Its newest runs",
        headers=("Run", "Trigger", "Agent", "Status", "Created"),
        rows=[
            (
                link(page("runs_run", run.pk), str(run.pk)[-12:]),
                run.trigger,
                run.agent,
                run.status,
                moment(run.created_at),
            )
            for run in runs[:RUNS_SHOWN]
        ],
        empty="None yet.",
        note=f"The newest {RUNS_SHOWN}." if len(runs) > RUNS_SHOWN else "",
    )
