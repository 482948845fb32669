"""Rows in bulk, as months of use would have left them."""
