"""The ways out, one file each: `mail`, `webhook`, `slack`, `inbox`, and `apprise` for everything else. `channel` defines what a
channel is and what it may report of a message; a new file with a `CHANNEL` is found by itself. Channels know no database."""
