"""The one metric of the click model: area under the ROC curve. NumPy only; called by ``worker`` and ``synthetic``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def auc(labels: npt.ArrayLike, scores: npt.ArrayLike) -> float:
    """Area under the ROC curve: the chance that a random click outscores a random non-click, ties counting a half.

    Parameters
    ----------
    labels : array_like, shape (n,)
        Non-zero where clicked.
    scores : array_like, shape (n,)
        Any increasing function of the predicted chance of a click.

    Returns
    -------
    float
        Between 0 and 1; 0.5 is chance.

    Raises
    ------
    ValueError
        Shapes differ, a score is NaN, or only one class is present (the area is not defined then).

    Notes
    -----
    The Mann-Whitney form: with ranks counted from 1 and ties given their mean rank, the area is
    ``(R - p (p + 1) / 2) / (p q)`` for the rank sum ``R`` of ``p`` clicks among ``q`` non-clicks.
    Source: Hanley and McNeil, Radiology 143 (1982).
    """
    clicked = np.asarray(labels).astype(bool)
    values = np.asarray(scores, dtype=np.float64)
    if clicked.shape != values.shape or clicked.ndim != 1:
        raise ValueError(f"auc: labels have shape {clicked.shape} and scores {values.shape}; both must be (n,)")
    if np.isnan(values).any():
        raise ValueError("auc: a score is NaN; the model has diverged")
    positives = int(clicked.sum())
    negatives = clicked.size - positives
    if positives == 0 or negatives == 0:
        raise ValueError(f"auc: needs both classes, got {positives} clicks and {negatives} non-clicks")
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    last_rank = np.cumsum(counts)
    mean_rank = last_rank - (counts - 1) / 2.0
    rank_sum = mean_rank[group][clicked].sum()
    return float((rank_sum - positives * (positives + 1) / 2.0) / (positives * negatives))
