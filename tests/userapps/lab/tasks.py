from celery import shared_task

from .models import Note


@shared_task
def note() -> None:
    """An ordinary periodic task; it knows nothing of runs."""
    from django.utils.timezone import now

    Note.objects.create(at=now())
