"""The sections of a run that may change while it is live. Its page asks for them every few seconds, with the entity tag of those that it
has; as long as nothing has changed, the answer is one query and no content."""

from collections.abc import Callable, Sequence
from uuid import UUID

from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.cache import get_conditional_response

from config.console.parts.sections import Live, Section
from runs.db.sql import fetch_column
from runs.models import Run
from runs.states import LIVE

FINAL = "X-Final"  # a header: the page need not ask again
# Each transition writes the row of the run; steps and waits are written besides. Bars and durations grow by themselves, which is shown
# twice a minute.
TAG = """
SELECT concat_ws('-', run.status, run.xmin, run.epoch, steps.count, steps.newest, waits.newest, lines.count,
  floor(extract(epoch FROM clock_timestamp()) / 30))
FROM runs_run run,
  LATERAL (SELECT count(*), extract(epoch FROM max(coalesce(ended_at, started_at))) AS newest FROM runs_step WHERE run_id = run.id) steps,
  LATERAL (SELECT extract(epoch FROM max(coalesce(ended_at, created_at))) AS newest FROM runs_wait WHERE run_id = run.id) waits
  , LATERAL (SELECT sum(count + dropped) AS count FROM runs_runlog WHERE run_id = run.id) lines
WHERE run.id = %s::uuid
"""


def live(run: Run, request: HttpRequest, read: Callable[[], Sequence[Section]]) -> Live:
    """The tag is read before the sections: what changes in between is seen at the next request."""
    if run.status not in LIVE:
        return Live(sections=read())
    tag = _tag(run.pk) or ""
    query = request.GET.urlencode()
    url = reverse("admin:runs_run_live", args=[run.pk]) + (f"?{query}" if query else "")
    return Live(sections=read(), url=url, tag=tag)


def live_answer(
    request: HttpRequest, id: UUID | str, runs: QuerySet[Run], sections: Callable[[Run, HttpRequest], Sequence[Section]]
) -> HttpResponse:
    tag = _tag(id)
    if tag is None:
        raise Http404("No run has this id.")
    if (same := get_conditional_response(request, etag=tag)) is not None:
        return same
    run = get_object_or_404(runs, pk=id)
    answer = TemplateResponse(request, "admin/console/live_sections.html", {"sections": sections(run, request)})
    answer["ETag"], answer["Cache-Control"] = tag, "no-store"
    if run.status not in LIVE:
        answer[FINAL] = "1"
    return answer


def _tag(id: UUID | str) -> str | None:
    found = fetch_column(TAG, [id])
    return f'W/"{found[0]}"' if found else None
