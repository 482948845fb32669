"""Incidents: failures of one thing with one cause, reported to people once.

- `cause`: an error without what differs from failure to failure. Pure.
- `note`: failures and successes → incidents, in the transaction of the caller. One statement if there are no failures,
  new or earlier.
- `tell`: which messages people get about incidents, and how often; and who gets an urgent one that no person acknowledges.
- `mutes`: the end of mutes with a new version of the code.
- `items`: items of checklists that could not be looked at.

A thing is a trigger, an agent (of runs without a trigger), an item of a checklist, or a source. Failures of runs are noted by the
dispatcher, from the message that a run leaves in the transaction of its end: a worker pays nothing, and failing runs do not meet
at a row. People close incidents and requeue their runs by the services of `runs.actions.incidents`.
"""
