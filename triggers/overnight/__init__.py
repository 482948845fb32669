"""Report of the night: `night` is the span of time, `figures` counts by agent, `digest` notifies people in the
morning.
"""
