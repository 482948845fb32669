"""What ran overnight: `night` is the span of time, `figures` counts by agent, `digest` tells people in the morning."""
