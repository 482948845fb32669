from tests.support.durable import lab  # noqa: F401  (a fixture)
