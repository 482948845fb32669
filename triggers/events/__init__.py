"""Recorded events: `read` for runs and agents; `search` for people, programs and replays, `pages` of what it finds."""
