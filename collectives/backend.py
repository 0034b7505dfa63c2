"""The torch.distributed backend: its Options, and the function that torch calls to make one group's backend.

Registered by :mod:`collectives._torch_entry` with ``Backend.register_backend``; the work is done in C++ (bindings/).
"""

from __future__ import annotations

from typing import Any

from collectives import log
from collectives._core import C10dBackend, Options
from collectives._core import create_backend as _create_backend

__all__ = ["C10dBackend", "Options", "create_backend"]


def create_backend(options: Any, backend_options: Options | None) -> C10dBackend:
    """Make the backend of one process group; collective over the group's store.

    Parameters
    ----------
    options : torch.distributed.DistributedBackendOptions
        The store, this rank, the size, the timeout and the name of the group.
    backend_options : Options or None
        The ``pg_options`` of ``init_process_group`` or ``new_group``. They are copied. A timeout in them comes before
        the one that torch was given.

    Returns
    -------
    C10dBackend
        Connected to all ranks.

    Raises
    ------
    TypeError
        If ``pg_options`` were made for another backend.
    ValueError
        If an option names something that does not exist, or an environment variable does not parse.
    torch.distributed.DistBackendError
        If a rank does not come before the timeout (the message names it), or has another version of the library.
    """
    if backend_options is not None and not isinstance(backend_options, Options):
        raise TypeError(
            f'pg_options for the backend "collectives" must be collectives.Options, '
            f"not {type(backend_options).__module__}.{type(backend_options).__qualname__}"
        )
    log.configure()
    return _create_backend(
        store=options.store,
        rank=options.group_rank,
        size=options.group_size,
        timeout=options.timeout,
        name=options.group_id,
        global_ranks=list(options.global_ranks_in_group),
        options=backend_options,
    )
