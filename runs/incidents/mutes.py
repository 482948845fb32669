"""The end of mutes “until the next version of the code”."""

from django.conf import settings
from django.db import transaction

from runs.db.sql import database_now
from runs.incidents.lock import lock
from runs.models import Incident, audit


def end_mutes(version: str) -> int:
    """A worker starts with this version: end the mutes until another one than theirs. Returns how many."""
    muted = Incident.objects.filter(muted_at__isnull=False).exclude(muted_versions=[])
    ended = muted.exclude(muted_versions__contains=[version])
    with transaction.atomic():
        lock()  # who mutes one meanwhile may not have seen this worker
        found = list(ended.select_for_update().order_by("id"))
        for incident in found:
            incident.unmute(now=database_now(), cooldown=settings.WAKEFUL_INCIDENT_COOLDOWN)
            incident.save(update_fields=[*Incident.MUTE, "tell_at"])
            audit.record("wakeful", "unmute", incident, name=incident.name, version=version)
    return len(found)
