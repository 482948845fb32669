"""Signs of trouble with connections."""
