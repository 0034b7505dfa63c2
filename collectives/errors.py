"""The errors that a collective raises. `docs/errors.md` says when, and what to do.

Wrong arguments of one rank are a plain :class:`ValueError` (or :class:`TypeError`), raised before anything is sent.
Imports nothing of the package: the extension imports it to raise.
"""

from __future__ import annotations


class CollectivesError(RuntimeError):
    """An operation failed, and with it its group: later calls raise the same error again."""


class MismatchError(CollectivesError):
    """The ranks of a group called different operations, or one with different dtypes, counts, roots or reduce ops."""


class PeerFailedError(CollectivesError):
    """A rank died, left the job, or reported a failure of its own."""


class CollectiveTimeoutError(CollectivesError, TimeoutError):
    """The deadline of an operation passed; the message names the ranks that are missing."""


class AbortedError(CollectivesError):
    """``abort()`` was called, here or on a peer."""


class ClosedError(CollectivesError):
    """The group was closed, or this is a forked child of the process that made it."""
