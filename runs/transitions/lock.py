from uuid import UUID

from runs import keys
from runs.models import Run


def lock_run(run_id: UUID) -> Run:
    """Lock a run until the transaction ends; its key first, as everywhere, against deadlocks. Raises Run.DoesNotExist."""
    if key := Run.objects.values_list("key", flat=True).get(pk=run_id):
        keys.lock(key)
    return Run.objects.select_for_update().get(pk=run_id)
