"""What requests to models cost: `metered` reserves the `estimate` before each request and books the `usage` at its `prices`
afterwards.
"""
