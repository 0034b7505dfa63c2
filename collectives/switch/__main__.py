"""``python -m collectives.switch``: the same as ``collectives switch``."""

from __future__ import annotations

import sys

from collectives.switch.command import main

if __name__ == "__main__":
    sys.exit(main())
