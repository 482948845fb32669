"""Run a past event again without effects, to see what the agent would do.

`shadow` executes it in a process and a transaction of its own, `store` answers from the original run's journal, `recorder` notes
what it would have done.
"""
