"""Metric sources in the console: a series is drawn with its bounds, episodes and runs (`chart`, `series`); a detector is tried on it
and armed (`trial`)."""
