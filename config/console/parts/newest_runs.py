"""The newest runs of a trigger, in SQL."""


def newest_runs_of(trigger: str) -> str:
    """The end of a statement that reads runs_run: those of `trigger`, an expression in SQL, the newest first.

    It is bound to the index on (trigger, id). With “WHERE trigger = … ORDER BY id” PostgreSQL may scan all runs for a trigger that has
    few or none."""
    return (
        f"trigger >= {trigger} AND (trigger, id) <= ({trigger}, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid) "
        "ORDER BY trigger DESC, id DESC"
    )
