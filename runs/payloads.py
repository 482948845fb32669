"""Taking away what runs were given, what they gave and what they said, while the runs themselves stay."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models.functions import Now

from runs.models import Attempt, Run


def remove_payloads(run_ids: Sequence[UUID]) -> list[UUID]:
    """Take input, result and error of finished runs away, in the caller's transaction; which runs lost theirs just now.
    They can never be requeued after that. Live ones are left as they are."""
    runs = Run.objects.finished().filter(id__in=run_ids, payload_removed_at=None)
    # Locked, so that one that is being requeued is waited for, and then left.
    ids = list(runs.order_by("id").select_for_update().values_list("id", flat=True))
    Attempt.objects.filter(run__in=ids).exclude(error="", traceback="").update(error="", traceback="")
    Run.objects.filter(id__in=ids).update(input=None, result=None, error="", payload_removed_at=Now())
    return ids
