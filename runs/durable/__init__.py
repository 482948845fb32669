"""The journal of a durable run in the database.

`journal` answers the body (steps, waits, children), `recorded` reads what earlier claims committed, `progress` follows a run's
progress notes.
"""
