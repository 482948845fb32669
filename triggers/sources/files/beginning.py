"""Where a source of files begins, and whether its ledger is that of another place."""

from datetime import UTC, datetime
from typing import Any

from triggers.models import Source
from triggers.sources.files.selection import Selection
from triggers.sources.polling.novelty import digest
from triggers.sources.runner import Assignment


def beginning(assignment: Assignment[Any], place: str, selection: Selection) -> tuple[dict[str, Any], bool]:
    """The position to go on with, and whether the ledger must be forgotten before. Files from before `began_at` may be passed over
    until the first scan `is_complete`; another selection begins again, with the files that are known."""
    if assignment.source_id is None:
        raise ValueError("files are read for the row of a source")
    stored = assignment.position or {}
    is_of_other = bool(stored) and stored["place"] != place
    chosen = digest(repr(selection))
    if stored and not is_of_other and stored["selection"] == chosen:
        return dict(stored), False
    began_at = datetime.now(UTC) if stored else Source.objects.get(pk=assignment.source_id).created_at
    kept = {} if is_of_other else stored
    fresh = {"place": place, "selection": chosen, "began_at": began_at.isoformat(), "is_complete": False}
    return {**kept, **fresh}, is_of_other
