"""Fixtures of the tests of the rig: they skip, with the reason, where no rig can be made."""

from __future__ import annotations

import pytest

from tests.hosts import why_not


@pytest.fixture
def possible() -> None:
    """Skip where no rig can be made."""
    if reason := why_not():
        pytest.skip(reason)
