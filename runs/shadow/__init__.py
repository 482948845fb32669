"""Run a past event again without effects, to see what the agent would do.

`shadow` executes it in a transaction that is rolled back, `store` answers from the original run's journal, `recorder` notes the
statements and the changed rows.
"""
