"""How much is sent to a thread: two agents, or an agent and a bot, that answer each other would not end."""

from collections import Counter
from datetime import datetime, timedelta

from django.db.models import Count, Q

from runs.models import Delivery

MOST = 200  # messages of a thread within an hour
BEYOND = (
    f"its thread has got {MOST} replies within an hour, so two may be answering each other; if not, send this one again"
)


def recent(threads: set[str], *, now: datetime) -> Counter[str]:
    """How many messages of each thread were to be sent within the last hour."""
    made = Delivery.objects.filter(thread__among=sorted(threads - {""}), created_at__gt=now - timedelta(hours=1))
    were_sent = made.exclude(thread="").filter(~Q(status=Delivery.Status.FAILED) | Q(attempts__gt=0))
    return Counter(dict(were_sent.values_list("thread").annotate(Count("id")).values_list("thread", "id__count")))
