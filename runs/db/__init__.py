"""PostgreSQL, below the models.

`sql` executes statements, `trip` several in one round trip, `listen` and `nudge` are LISTEN and NOTIFY, `ready_runs` finds ready runs in
the order of claims, `session` and `patience` set what a session may do and how long it waits, `outage` decides when the database counts
as away, `schema_check` when its schema is too old; `encryption` keeps secrets at rest; `any_lookup`, `column_defaults`, `poll` are small
parts.
"""
