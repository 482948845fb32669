"""What a person or another run does to a run: cancel, requeue, fork, resolve, approve, signal.

Views, admin actions and commands call these and nothing else. `select` finds the runs of a bulk action, `of_event` those of an
event, and `watch` waits for a run to finish.
"""
