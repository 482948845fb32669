"""What the measurements share: servers and a stack of their own, the processes on them, and what is read from those."""
