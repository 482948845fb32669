"""Retention and erasure of events: `prune` by age, `payloads`, `erasure` by subject."""
