"""Run a past event again without effects, to see what the agent would do.

`shadow` executes it in a process and a transaction of its own, `journal` answers from the records, `recorder` notes what it would
have done.
"""
