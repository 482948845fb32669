"""Processes of ours that a measurement starts: they make load, or count what the product's own calls touch."""
