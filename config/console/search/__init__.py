"""The search in the header of every page: one box for pages, agents, triggers, sources, runs, events and documentation."""
