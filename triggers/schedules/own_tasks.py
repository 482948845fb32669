"""Which periodic tasks are Wakeful's own.

django-celery-beat's tables may be those of a project with a Beat of its own. Wakeful's are the tasks that fire a trigger, however they
were made (a declaration, the console, the API), and its maintenance. The others are ordinary: Wakeful's Beat fires them only with
WAKEFUL_ADOPT_PERIODIC_TASKS.

The other way round, Wakeful's tasks have MARK in their `headers`, by a trigger of the table. That is no JSON, so the project's
DatabaseScheduler leaves them out: it reads each row's headers, and skips a row that raises ValueError.
"""

from django.conf import settings

from runs.db.sql import execute

FIRE_TASK = "triggers.fire_schedule"  # what rows of triggers do under another scheduler than ours
MAINTENANCE = "wakeful."  # how the names of its tasks begin
MARK = "Fired by Wakeful's Beat alone."  # as the migration `own_tasks` writes it

# Maintenance that has nothing to do before a table is watched: its row is made then, and stays. A source that is deleted at once leaves
# its functions.
TABLES = "wakeful.tables"
WATCHES_TABLES = """(EXISTS (SELECT FROM triggers_source WHERE kind = 'table')
  OR EXISTS (SELECT FROM pg_proc WHERE starts_with(proname, 'wakeful_change_')))"""

# Those that another setting settled, and maintenance that an earlier version refused for its mark. The parameter is the setting
# WAKEFUL_ADOPT_PERIODIC_TASKS.
WAS_SETTLED_OTHERWISE = f"""CASE
  WHEN starts_with(task.task, '{MAINTENANCE}') THEN schedule.rest = 'problem' AND starts_with(schedule.problem, 'its headers are')
  ELSE schedule.trigger_id IS NULL AND task.task <> '{FIRE_TASK}' AND (schedule.rest = 'foreign') = %s::boolean END"""
SETTLE_AGAIN = f"""
UPDATE triggers_schedule SET stale = true WHERE id IN (
  SELECT schedule.id FROM triggers_schedule schedule JOIN django_celery_beat_periodictask task ON task.id = schedule.task_id
  WHERE NOT schedule.stale AND {WAS_SETTLED_OTHERWISE} FOR UPDATE OF schedule SKIP LOCKED)
"""  # noqa: S608  (our own parts)


def is_foreign(task: str, trigger_id: object) -> bool:
    """Is another Beat to fire it?"""
    is_own = trigger_id is not None or task == FIRE_TASK or task.startswith(MAINTENANCE)
    return not is_own and not settings.WAKEFUL_ADOPT_PERIODIC_TASKS


def settle_again() -> int:
    """Mark what must be settled by the present setting, but for what another session has locked, which the walk finds; return how many."""
    return execute(SETTLE_AGAIN, [settings.WAKEFUL_ADOPT_PERIODIC_TASKS])
