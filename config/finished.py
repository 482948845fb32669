from collections.abc import Sequence
from typing import Any

from runs.attempt.children import stop_orphans
from triggers.dispatch.run_failures import count_failures


def tell(payloads: Sequence[dict[str, Any]]) -> None:
    """Tell everybody whom it concerns that runs have finished."""
    count_failures(payloads)
    stop_orphans(payloads)
