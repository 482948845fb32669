"""Message brokers, one file each, that `manage.py sources` reads from."""
