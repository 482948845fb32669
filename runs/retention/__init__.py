"""Retention by age and erasure by subject.

`sweep` deletes old rows in batches, `prune` decides which rows of runs, `payloads` removes payloads and keeps the rows; `erasure`
removes a subject's payloads at once, also from the runs that `family` finds; `removal` permits these deletions in the
database.
"""
