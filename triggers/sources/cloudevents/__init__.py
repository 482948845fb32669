"""CloudEvents 1.0 over HTTP: `format` reads all three content modes, `intake` is the endpoint."""
