"""PostgreSQL, below the models.

`sql` executes statements, `listen` and `nudge` are LISTEN and NOTIFY, `ready` finds ready runs in the order of claims, `session` and
`patience` set what a session may do and how long it waits, `away` says when the database counts as away, `migrated` when its
schema is too old; `encryption` keeps secrets at rest; `among`, `readable`, `sequence` are small parts.
"""
