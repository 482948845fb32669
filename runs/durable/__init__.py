"""The journal of a durable run in the database, for the engine in `agents.journal`.

`store` reads and writes it, each commit fenced; `journal_rows` are the entries of earlier claims, `progress` the statements that write
entries; `ends` decides on the outcome of an interrupted body. `sessions`: a run holds the named session that it continues, one
at a time. `transcript` reads the journal for people.
"""
