"""What an installation has made in its database and in Redis: `schema_objects` compares it with what this version makes, `removal`
removes it."""
