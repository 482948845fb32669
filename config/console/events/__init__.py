"""Events and decisions in the console."""
