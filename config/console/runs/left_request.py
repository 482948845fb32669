"""Who makes the request to a model that a run waits for, in words."""

from django.conf import settings
from django.utils import timezone
from django.utils.safestring import SafeString

from agents.kernel.durations import in_words as span
from config.console.parts.html import format_html
from config.console.parts.links import link, page
from config.console.parts.moments import moment
from config.console.runs.words import first_line
from runs.actions.stop_agents import EVERY
from runs.models import AgentStop, ModelCall, Run, Wait, Worker

GOES_ON = "The run goes on with the answer. Meanwhile it occupies no worker, and Cancel ends it."


def request_of(run: Run, wait: Wait) -> list[str | SafeString]:
    call = ModelCall.objects.filter(pk=wait.pk).defer("content").first()
    said: list[str | SafeString] = [format_html("Left to a caller {}.", moment(wait.created_at))]
    if call is not None and call.error:
        said.append(format_html("Try {} failed: {}", call.tries - (call.owner_id is not None), first_line(call.error)))
    return [*said, _who(run, call), GOES_ON]


def _who(run: Run, call: ModelCall | None) -> str | SafeString:
    itself = f"within {span(settings.WAKEFUL_LEASE + settings.WAKEFUL_SAFETY_LOOK)} or so the run makes it itself"
    if call is None:
        return f"No caller has the request any more: {itself}."
    if stopped := AgentStop.objects.filter(agent__in=[run.agent, EVERY]).values_list("agent", flat=True).first():
        which = "All agents are" if stopped == EVERY else "Its agent is"
        return f"{which} stopped: the request is made after the start."
    if call.owner_id is not None:
        owner = Worker.objects.filter(pk=call.owner_id).first()
        who = link(page("runs_worker", owner.pk), f"{owner.host}:{owner.pid}") if owner else "that is gone"
        return format_html("Caller {} makes the request.", who)
    if call.due_at > timezone.now():
        return format_html("A caller makes the request again {}.", moment(call.due_at))
    return f"No caller has taken the request yet. If none does, {itself}."
