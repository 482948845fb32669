from celery import shared_task

from triggers.models import Trigger
from triggers.sources.manual import fire


@shared_task(name="triggers.fire_schedule")
def fire_schedule(slug: str) -> str:
    """Fires a trigger's PeriodicTask under django-celery-beat's own scheduler; Wakeful's Beat fires it directly."""
    return str(fire(Trigger.objects.get(slug=slug), by="celery-beat"))
