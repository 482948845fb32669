"""A system's triggers, sources and schedules as a file: `export`, and back: `check` it whole, then `carry_out`."""
