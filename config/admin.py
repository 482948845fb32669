"""Django's admin looks here for what to register; the console's pages are one noun a file."""
