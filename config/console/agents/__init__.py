"""Agents in the console: their `page`, `checklists`, `memory`, `sessions` and `budgets`, and what they did `overnight`."""
