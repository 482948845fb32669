"""Places where runs answer the messages that woke them, one file each. `place` defines what a place is; a new file with a `PLACE` is
found by itself. A place gets what a source has derived from its event (`triggers.sources.reply_place`), and holds no secret."""
