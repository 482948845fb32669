"""Events as a file: CloudEvents 1.0, one JSON object per line (NDJSON). `line` writes and reads one, `export` a search of them,
`load` brings them back, as archived events that are not dispatched until they are replayed."""
