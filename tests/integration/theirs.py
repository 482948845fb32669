"""django-celery-beat's scheduler, except that it can be ended at any moment.

The handler of SIGTERM calls `close`, which saves rows. Where it strikes in the middle of a query, psycopg's connection is
locked by the very frame that was interrupted, and theirs waits for that lock for ever.
"""

from typing import Any

from django_celery_beat import schedulers


class DatabaseScheduler(schedulers.DatabaseScheduler):  # type: ignore[misc]  # it has no types
    is_ticking = False

    def tick(self, *args: Any, **kwargs: Any) -> Any:
        self.is_ticking = True
        try:
            return super().tick(*args, **kwargs)
        finally:
            self.is_ticking = False

    def close(self) -> None:
        if not self.is_ticking:  # else Beat calls it again when it has left the tick
            super().close()
