"""Measurements of this machine: `make bench`. See README.md."""
