"""A few small agents that are useful as they stand, and the demo: installed by WAKEFUL_DEMO, which `up --demo` sets."""
