"""What the processes of the bench know of each other."""

READY = "ready"  # a line that a load process prints
DRAINED = "bench_drained"  # a NOTIFY channel
PEER_QUEUE = "peer"
MODEL = "bench"  # of the LLM agent
PEER_DRAINED = "peer:drained"  # lists in Valkey
PEER_SEEN = "peer:seen"
