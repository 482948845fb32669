"""One file for each detector; it is found by its place."""
