"""Agents that look at a checklist from time to time: `heartbeat` declares one, `watch` is the look, `verdict` its answer."""
