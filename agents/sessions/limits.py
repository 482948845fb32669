"""Bounds of sessions."""

SUMMARY_LENGTH = 10_000  # characters
MOST_TURNS = 1_000
MOST_CHARACTERS = 1_000_000
