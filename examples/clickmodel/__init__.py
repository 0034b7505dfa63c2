"""The main job: a DLRM-style click model trained on several backends in one run.

``examples/movielens.py`` is the entry point. The modules, in the order in which the data pass them: ``data``
(MovieLens-100k), ``synthetic`` (the generator used where no index is reachable), ``model``, ``metrics``, ``worker``
(what one rank does), ``launch`` (starts the ranks), ``results`` (arrays to figures and verdicts), ``report`` (table
and PNG).
"""
