"""The journal of a durable run in the database, for the engine in `agents.journal`.

`store` reads and writes it, each commit fenced; `recorded` is what earlier claims committed, `progress` the statements that write
entries, and `ends` says what becomes of a run whose body was interrupted.
"""
