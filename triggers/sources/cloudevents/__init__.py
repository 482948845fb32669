"""CloudEvents 1.0 over HTTP: `format` parses the three content modes, `intake` is the endpoint."""
