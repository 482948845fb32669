"""Metric sources: numbers over time, and the detectors that make events of them.

`metric` is what all kinds share, and each other kind is one file; `samples` stores what they read, lets the armed detectors see
it and records the events of their episodes, all in one transaction. A detector (`detectors`, one file each; `detector` is the
contract) decides for each sample whether it is out; `episodes` makes of that one event when an episode opens, worsens
and closes. `replay` tries a detector on the stored series, and `arm` arms it.
"""
