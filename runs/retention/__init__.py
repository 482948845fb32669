"""Retention by age and erasure by subject.

`sweep` deletes old rows in batches, `prune` says which rows of runs, `payloads` removes payloads and keeps the rows; `erasure`
removes a subject's payloads now, and from what `family` finds; `removal` tells the database that this is allowed.
"""
