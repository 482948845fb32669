"""Apply one service to many objects. Objects whose state forbids it are skipped and counted."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from config.console.parts.panel import acting
from runs.exceptions import RunError

AT_ONCE = 1_000  # objects per click: each is one transaction, and the request must end in time
GONE = "it is gone"  # such as a run whose gate was quiet since the page was made


def carry_out(
    request: HttpRequest,
    chosen: QuerySet[Any],
    act: Callable[..., object],
    *,
    done: str,
    legal: Q | None = None,
    otherwise: str = "",
) -> None:
    """Call `act(object, by=…)` on each chosen object that `legal` allows; show the user how many were refused and why."""
    by = acting(request)
    allowed = chosen if legal is None else chosen.filter(legal)
    refused: Counter[str] = Counter()
    if legal is not None:
        refused[otherwise] = chosen.exclude(legal).order_by()[:AT_ONCE].count()
    count = 0
    for one in allowed[:AT_ONCE]:
        try:
            act(one, by=by)
            count += 1
        except RunError as refusal:
            refused[str(refusal)] += 1
        except ObjectDoesNotExist:
            refused[GONE] += 1
    tell(request, done, count, +refused)
    if count == AT_ONCE:
        messages.warning(request, f"Only the first {AT_ONCE:,} were processed; repeat the action for the rest.")


def tell(request: HttpRequest, done: str, count: int, refused: Counter[str]) -> None:
    if count:
        messages.success(request, f"{count} {done}.")
    for reason, number in refused.most_common(5):
        messages.warning(request, f"{number} refused: {reason}")
    if not count and not refused:
        messages.info(request, "No rows were selected.")
