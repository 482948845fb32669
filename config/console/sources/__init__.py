"""Sources in the console."""
