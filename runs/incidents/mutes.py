"""The end of mutes “until the next version of the code”."""

from datetime import timedelta

import structlog
from django.conf import settings

from runs.db.patience import Locked, no_longer_than
from runs.db.sql import database_now
from runs.incidents.lock import lock
from runs.models import Incident, audit

log = structlog.get_logger(__name__)

WAIT = timedelta(seconds=2)  # a worker that starts does not renew its lease meanwhile


def end_mutes(version: str, *, wait: timedelta = WAIT) -> int | None:
    """A worker starts with this version: end the mutes until another one than theirs. Returns how many; None: the lock is held, and the
    worker tries again."""
    muted = Incident.objects.filter(muted_at__isnull=False).exclude(muted_versions=[])
    ended = muted.exclude(muted_versions__contains=[version])
    try:
        with no_longer_than(wait):
            lock()  # who mutes one meanwhile may not have seen this worker
            found = list(ended.select_for_update().order_by("id"))
            for incident in found:
                incident.unmute(now=database_now(), cooldown=settings.WAKEFUL_INCIDENT_COOLDOWN)
                incident.save(update_fields=[*Incident.MUTE, "tell_at"])
                audit.record("wakeful", "unmute", incident, name=incident.name, version=version)
            return len(found)
    except Locked as held:
        log.warning("incidents.mutes_not_ended", version=version, error=str(held))
        return None
