"""What a reader arranges of a list: its columns, and views of it that are kept under a name."""
