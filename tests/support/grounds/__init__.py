"""What changes by itself: each kind of source that watches something is a `Ground`, for tests/acceptance/test_ground_moves.py."""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{module}" for module in ("absences", "episodes", "files", "foreign_rows", "rows"))
)
