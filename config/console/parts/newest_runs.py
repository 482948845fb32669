"""The newest runs of a trigger, in SQL."""


def newest_runs_of(trigger: str) -> str:
    """The end of a statement that reads runs_run: those of `trigger`, an expression in SQL, the newest first.

    A range, in the order of the index on (trigger, id): for an equality PostgreSQL may read all runs in the order of their ids if the
    trigger has few or none."""
    return f"trigger BETWEEN {trigger} AND {trigger} ORDER BY trigger DESC, id DESC"
