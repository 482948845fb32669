"""Retention and erasure of events: `prune` deletes by age, `erasure` by subject; `payloads` is what both use."""
