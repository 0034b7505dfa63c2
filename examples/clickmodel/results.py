"""From what the ranks recorded to figures and verdicts. Pure functions; called by ``report`` and the entry point."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

BASELINE = "gloo"
OURS = "collectives"
MAX_COMM_SHARE = 0.2  # of the baseline's communication time
# With two ranks a sum has two terms, and their order makes no difference: only fp32 rounding of another kind (a fused
# or wider intermediate) could show, so a few units in the last place are allowed. With more ranks the backends may add
# in another order, and AdamW, which divides by the gradient's own size, lets those last bits grow over the steps.
LOSS_TOLERANCE_TWO_RANKS = 1e-6
LOSS_TOLERANCE_MORE_RANKS = 1e-3


@dataclass(frozen=True)
class Figures:
    """One backend's run, over all ranks.

    Attributes
    ----------
    label, backend : str
        How it is called in output (unique), and c10d's name.
    loss : float64, shape (ranks, steps)
    step_ns : float64, shape (steps,)
        Of the slowest rank.
    comm_ns : float64, shape (steps,)
        The minimum over the ranks: waiting for a late peer is not communication.
    auc : float64, shape (epochs,)
        Held out.
    digests : tuple of str
        Of each rank's weights at the end.
    warm_up : int
        Steps left out of all medians and totals.
    """

    label: str
    backend: str
    loss: npt.NDArray[np.float64]
    step_ns: npt.NDArray[np.float64]
    comm_ns: npt.NDArray[np.float64]
    auc: npt.NDArray[np.float64]
    digests: tuple[str, ...]
    warm_up: int

    @property
    def step_median_ns(self) -> float:
        return float(np.median(self.step_ns[self.warm_up :]))

    @property
    def comm_median_ns(self) -> float:
        return float(np.median(self.comm_ns[self.warm_up :]))

    @property
    def comm_p95_ns(self) -> float:
        return float(np.percentile(self.comm_ns[self.warm_up :], 95))

    @property
    def comm_total_ns(self) -> float:
        return float(self.comm_ns[self.warm_up :].sum())

    @property
    def mean_loss(self) -> npt.NDArray[np.float64]:
        """Over the ranks, shape (steps,)."""
        return np.asarray(self.loss.mean(axis=0))


def make_labels(backends: tuple[str, ...]) -> list[str]:
    """Unique names: the second "gloo" becomes "gloo #2"."""
    return [
        name if name not in backends[:index] else f"{name} #{backends[: index + 1].count(name)}"
        for index, name in enumerate(backends)
    ]


def load(run_dir: Path, backends: tuple[str, ...], ranks: int, warm_up: int) -> list[Figures]:
    """Read the files that the ranks left.

    Raises
    ------
    FileNotFoundError
        A rank left none.
    """
    stored = [dict(np.load(run_dir / f"rank{rank}.npz", allow_pickle=False)) for rank in range(ranks)]
    figures = []
    for index, label in enumerate(make_labels(backends)):
        loss = np.stack([rank[f"loss_{index}"] for rank in stored])
        figures.append(
            Figures(
                label=label,
                backend=backends[index],
                loss=loss,
                step_ns=np.stack([rank[f"step_ns_{index}"] for rank in stored]).max(axis=0).astype(np.float64),
                comm_ns=np.stack([rank[f"comm_ns_{index}"] for rank in stored]).min(axis=0).astype(np.float64),
                auc=stored[0][f"auc_{index}"],
                digests=tuple(str(rank[f"digest_{index}"]) for rank in stored),
                warm_up=min(warm_up, loss.shape[1] - 1),
            )
        )
    return figures


def loss_gap(reference: Figures, other: Figures) -> float:
    """Largest relative difference of any rank's loss at any step; infinite where one is not finite."""
    if not (np.isfinite(reference.loss).all() and np.isfinite(other.loss).all()):
        return float("inf")
    return float((np.abs(reference.loss - other.loss) / np.maximum(np.abs(reference.loss), 1e-12)).max())


def baseline_of(figures: list[Figures]) -> Figures:
    """Figures of gloo if it ran, else the first."""
    return next((entry for entry in figures if entry.backend == BASELINE), figures[0])


def failures(figures: list[Figures], auc_bound: float, max_comm_share: float = MAX_COMM_SHARE) -> list[str]:
    """What is not as it must be, one sentence each; empty when all is well.

    Parameters
    ----------
    figures : list of Figures
    auc_bound : float
        The least held-out AUC after the last epoch.
    max_comm_share : float
        Of gloo's median communication time, allowed to `OURS`; looked at only where both ran.
    """
    baseline = baseline_of(figures)
    ranks = baseline.loss.shape[0]
    tolerance = LOSS_TOLERANCE_TWO_RANKS if ranks <= 2 else LOSS_TOLERANCE_MORE_RANKS
    found = []
    for entry in figures:
        gap = loss_gap(baseline, entry)
        if not gap <= tolerance:
            found.append(
                f"losses differ: {entry.label} from {baseline.label} by up to {gap:.1e} (at most {tolerance:.0e})"
            )
        if len(set(entry.digests)) > 1:
            found.append(f"the ranks' weights differ at the end of {entry.label}: its all_reduce gave them other bits")
        if not entry.auc[-1] >= auc_bound:
            found.append(f"held-out AUC of {entry.label} is {entry.auc[-1]:.4f}, below {auc_bound:.4f}")
        share = entry.comm_median_ns / baseline.comm_median_ns
        if entry.backend == OURS and baseline.backend == BASELINE and not share <= max_comm_share:
            found.append(
                f"communication of {entry.label} takes {share:.2f} of {baseline.label}'s time "
                f"({entry.comm_median_ns / 1e3:.0f} us of {baseline.comm_median_ns / 1e3:.0f} us); "
                f"at most {max_comm_share:.2f} is allowed"
            )
    return found
