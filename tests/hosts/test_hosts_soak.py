"""A short run of the soak between hosts (tests/soak/hosts.py; `make soak-hosts` is the long one)."""

from __future__ import annotations

import pytest

from tests.soak import hosts as soak_hosts

SEED, OPERATIONS = 20, 500


@pytest.mark.usefixtures("possible")
@pytest.mark.deadline(200)
def test_random_operations_with_losses_give_the_bytes_of_shared_memory() -> None:
    try:
        said = soak_hosts.compare(SEED, OPERATIONS, timeout=150)
    except AssertionError as error:
        command = f"python -m tests.soak.hosts --seed {SEED} --operations {OPERATIONS}"
        raise AssertionError(f"{error}\nTo repeat it: {command}") from error
    assert said.startswith(f"{OPERATIONS} operations on 4 hosts")
