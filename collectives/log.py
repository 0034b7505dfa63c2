"""What the library says in the log: once, what a group runs on and why. The logger is Python's, "collectives".

``COLLECTIVES_LOG`` prints it to stderr; without the variable it goes where the program's own ``logging`` configuration
sends it. Called by the modules that make groups and by the extension; imports nothing of the package but the
configuration.
"""

from __future__ import annotations

import logging
import os
import re

from collectives import config

logger = logging.getLogger("collectives")

_said: set[str] = set()
_configured = False


def configure() -> None:
    """Read ``COLLECTIVES_LOG`` and look for misspelt variables; the first call of a process does it.

    Raises
    ------
    ValueError
        If the variable names no level.
    """
    global _configured
    if _configured:
        return
    level = config.LOG.read()
    if level is not None:
        handler = logging.StreamHandler()  # stderr
        handler.setFormatter(logging.Formatter("%(asctime)s %(name)s[%(process)d] %(levelname)s: %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(level.upper())
        logger.propagate = False  # a program that configured logging would print every line twice
    _configured = True
    for name in config.check_names(os.environ):
        logger.warning("%s is set, but there is no such variable; docs/configuration.md lists them", name)


def group_made(name: str, rank: int, world_size: int, runs_on: str) -> None:
    """Say what a new group runs on: at level info when that is new in this process, else at level debug.

    Parameters
    ----------
    name : str
        The group's name.
    rank, world_size : int
        This process's index in the group, and the group's size.
    runs_on : str
        The engine's own words (``describe()`` of the communicator or backend).
    """
    kind = re.sub(r"staging [^,;]*", "", runs_on)  # every group has as much as was left
    level = logging.DEBUG if kind in _said else logging.INFO
    _said.add(kind)
    logger.log(level, "group '%s', rank %d of %d: %s", name, rank, world_size, runs_on)


def enabled() -> bool:
    """Whether :func:`group_made` would be heard; asking the engine costs a system call for each peer."""
    return logger.isEnabledFor(logging.INFO)
