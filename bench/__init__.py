"""The benchmark: `run.py` measures peers in one interleaved run, `compare.py` launches those that cannot share one."""
