"""django-celery-beat's own scheduler for an installation that goes back to it: it fires Wakeful's tasks as well, whose mark keeps the
Beats of other programs from them."""

from typing import Any

from django_celery_beat import schedulers

from triggers.schedules.own_tasks import MARK


class Entry(schedulers.ModelEntry):  # type: ignore[misc]  # it has no types
    def __init__(self, model: Any, app: Any = None) -> None:
        if model.headers == MARK:
            model.headers = "{}"
        super().__init__(model, app)


class DatabaseScheduler(schedulers.DatabaseScheduler):  # type: ignore[misc]  # it has no types
    Entry = Entry
