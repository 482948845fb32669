"""Triggers, sources and schedules as a file: `export` writes it; `check` validates it and `carry_out` imports it."""
