"""Actions on a run, by a person or another run: cancel, requeue, fork, resolve, approve, signal.

Views, admin actions and commands call these and nothing else. `select` finds the runs of a bulk action, `event_runs` the runs of
an event, and `watch` waits for a run to finish.
"""
