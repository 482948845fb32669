"""Due schedules become events. Any number of Beats may do this at once: due rows are claimed, and a tick is recorded,
its schedule advanced and its task counted in one transaction, so every nominal time is accounted for exactly once.

1. An edit marks a schedule stale and keeps what had held until then (Revision), in the editor's transaction. A stale
   schedule is settled before it may fire: what its past definitions still owed is accounted for, then it is armed again.
   An edit that changes nothing (the same rule written again, another name) moves nothing.
2. A schedule row and its task row are locked together or not at all: an editor locks the task first and then, through
   the table's trigger, the schedule. A locked row is skipped, never waited for, so there is no deadlock.
3. The rules are read after the locks, in a new statement: an edit that came just before the claim is seen.
4. A nominal time is *on time* until its due time is GRACE old, or, once a later one is due as well, LAG old: that much
   lateness is Beat's own (a busy machine, a restart), and no policy drops such a tick. An older one was *missed*:
   `all` fires each of them, `latest` the newest unless one on time fires anyway, `skip` none.
5. A nominal time that does not fire is a Skip with its reason, written when `accounted_until` passes it.
6. Where django-celery-beat's own scheduler has run meanwhile (`last_run_at` is later than our last fire), what it fired
   is not owed.
7. Only the database's clock decides what is due. The instant is an argument so that tests can choose it.

In reading order: `due_schedules` (Beat's calls), `claim`, `settle` (edits), `catch_up`, `owed_fires`, `record`, `reconcile`.
"""
