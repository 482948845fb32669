"""Backfills in the console."""
