"""Message brokers that `manage.py sources` reads from, one file each.

Of `kafka`, `kafka_reader` makes the batches: `kafka_client` speaks to the cluster, `kafka_offsets` follows the place in each
partition, `kafka_topics` the identity of topics, and `kafka_messages` makes events.
"""
