"""Sources that watch: they record an event when another one is absent, and when it returns. `absence` watches events of other
sources, `ping` is a dead man's switch, whose door is `views`. `triggers.switches` is what watches."""
