"""Remove the payloads of runs and keep their rows."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import or_
from uuid import UUID

from django.db.models import Q
from django.db.models.functions import Now

from agents.journal.entries import StepEntry
from agents.models import ChecklistItem
from runs.models import Approval, AttemptRow, Run, RunLog, Step, Wait


def remove_payloads(run_ids: Sequence[UUID]) -> list[UUID]:
    """Remove input, result, error, log, the answer of the gate, journal contents and texts on checklist items of finished runs, in the
    caller's transaction; return the runs that had a payload. They can no longer be requeued or forked. Live runs are left
    alone."""
    runs = Run.objects.finished().filter(id__among=run_ids, payload_removed_at=None)
    # Locked, so that this waits for a requeue, and then leaves that run alone.
    ids = list(runs.order_by("id").select_for_update().values_list("id", flat=True))
    AttemptRow.objects.filter(run__id__among=ids).exclude(error="", traceback="").update(error="", traceback="")
    RunLog.objects.filter(run__id__among=ids).delete()
    _empty_journals(ids)
    ChecklistItem.objects.filter(last_run_id__among=ids).exclude(last_text="").update(last_text="")
    Run.objects.filter(id__among=ids).update(input=None, result=None, fired=None, error="", payload_removed_at=Now())
    return ids


def remove_conversation(run_id: UUID, pending: Sequence[StepEntry]) -> list[StepEntry]:
    """Remove prompts, answers of models, arguments and results of tools, and checkpoints of graphs from a run's journal, in the caller's
    transaction; return the entries that are still to be written, without them. The run cannot be replayed
    afterwards.
    """
    of_graphs = reduce(or_, (Q(key__startswith=prefix) for prefix in Step.OF_GRAPHS))
    conversation = Step.objects.filter(Q(kind__in=Step.CONVERSATION) | of_graphs, run_id=run_id)
    conversation.update(arguments=None, output=None, error="")
    of_graphs = Q(wait__key__startswith=Approval.OF_GRAPHS)
    asked = Approval.objects.filter(Q(wait__key__startswith=Approval.OF_TOOLS) | of_graphs, wait__run_id=run_id)
    asked.filter(Q(wait__key__regex=Approval.QUESTIONS) | of_graphs).update(question="")  # texts of the model
    asked.update(detail="", arguments=None, digest="", decided_arguments=None, decided_digest="", reason="")
    return [
        replace(entry, output=None)
        if entry.kind in Step.CONVERSATION or entry.key.startswith(Step.OF_GRAPHS)
        else entry
        for entry in pending
    ]


def _empty_journals(run_ids: Sequence[UUID]) -> None:
    """Empty the entries, but keep who decided what and when, and what models used. Hashes go too: they would reveal one of few
    possible values."""
    Step.objects.filter(run__id__among=run_ids).update(arguments=None, output=None, error="")
    Wait.objects.filter(run__id__among=run_ids, match__isnull=False).update(match=None, match_hash="")
    Approval.objects.filter(wait__run__id__among=run_ids).update(
        question="", detail="", arguments=None, digest="", decided_arguments=None, decided_digest="", reason=""
    )
