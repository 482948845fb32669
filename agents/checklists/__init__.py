"""Checklists: what an agent looks at, each item at its own interval.

- `due`: which items are due together, and when each is due next; pure
- `run_checklist`: `run.checklist`, for bodies and gates
- `history`: a revision's definition, and the difference between two

People edit checklists by the services of `runs.actions.checklists`.
"""
