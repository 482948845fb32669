"""Incidents in the console: their `page`, and the `failure_rates` of triggers and agents."""
