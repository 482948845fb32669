"""Providers of OAuth 2, one file each. A file defines `PROVIDER`; nothing lists the files."""
