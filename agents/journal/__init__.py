"""What a durable body asks of its journal.

`protocol` says what a journal answers: a step, a wait, a child, an approval, each at its place. `keys` gives each its place, and
`simulated` keeps a journal in memory, for tests and shadow runs. The journal in the database is `runs.durable`.
"""
