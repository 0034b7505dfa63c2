"""The table on the terminal and the PNG. Called by ``examples/movielens.py`` with what ``results`` computed."""

from __future__ import annotations

import io
import itertools
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .results import Figures, baseline_of, loss_gap

INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLOURS = ("#9aa5b1", "#0f7bcc", "#d9730d", "#3a9d5d")  # the baseline is grey: it is what the eye compares with
SMOOTHING_STEPS = 25


def rows(figures: list[Figures]) -> tuple[list[str], list[list[str]]]:
    """Header and cells of the table: a row for each backend, then one of ratios for each that is not the baseline."""
    header = ["backend", "step", "communication", "p95", "total", "of step", "test AUC", "final loss"]
    baseline = baseline_of(figures)
    cells = []
    for entry in figures:
        cells.append(
            [
                entry.label,
                f"{entry.step_median_ns / 1e6:.2f} ms",
                f"{entry.comm_median_ns / 1e3:.0f} us",
                f"{entry.comm_p95_ns / 1e3:.0f} us",
                f"{entry.comm_total_ns / 1e6:.0f} ms",
                f"{100 * entry.comm_median_ns / entry.step_median_ns:.1f} %",
                f"{entry.auc[-1]:.4f}",
                f"{entry.mean_loss[-1]:.6f}",
            ]
        )
    for entry in figures:
        if entry is not baseline:
            gap = loss_gap(baseline, entry)
            cells.append(
                [
                    f"{baseline.label} / {entry.label}",
                    f"{baseline.step_median_ns / entry.step_median_ns:.2f}x",
                    f"{baseline.comm_median_ns / entry.comm_median_ns:.1f}x",
                    f"{baseline.comm_p95_ns / entry.comm_p95_ns:.1f}x",
                    f"{baseline.comm_total_ns / entry.comm_total_ns:.1f}x",
                    "",
                    f"{entry.auc[-1] - baseline.auc[-1]:+.4f}",
                    "bit-equal" if gap == 0.0 else f"differ {gap:.0e}",
                ]
            )
    return header, cells


def table(figures: list[Figures], width: int = 110) -> str:
    """The table as text: drawn by rich when it is installed, aligned columns otherwise."""
    header, cells = rows(figures)
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        widths = [max(len(row[column]) for row in [header, *cells]) for column in range(len(header))]
        aligned = [[cell.rjust(size) for cell, size in zip(row, widths, strict=True)] for row in [header, *cells]]
        lines = ["  ".join(row) for row in aligned]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
    drawn = Table(box=box.SIMPLE_HEAD)
    for column, name in enumerate(header):
        drawn.add_column(name, justify="left" if column == 0 else "right", no_wrap=True)
    for number, row in enumerate(cells):
        drawn.add_row(*row, end_section=number == len(figures) - 1, style="bold" if number >= len(figures) else "")
    out = io.StringIO()
    Console(file=out, width=width, force_terminal=sys.stdout.isatty()).print(drawn)
    return out.getvalue().strip("\n")


def draw(figures: list[Figures], title: str, subtitle: str, path: Path) -> None:
    """Write the PNG: loss curves of all backends, held-out AUC, communication time of every step.

    Raises
    ------
    ImportError
        matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")  # no display is needed
    from matplotlib import pyplot

    style: dict[Any, Any] = {
        "font.size": 10,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "text.color": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.color": GRID,
        "axes.axisbelow": True,
    }
    with pyplot.rc_context(style):
        canvas, (left, middle, right) = pyplot.subplots(1, 3, figsize=(14, 5), width_ratios=(1.25, 0.8, 1.25))
        # The top seventh is left to the titles.
        canvas.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08, rect=(0, 0, 1, 0.86))
        canvas.text(0.012, 0.94, title, fontsize=15, fontweight="bold")
        canvas.text(0.012, 0.885, subtitle, fontsize=10, color=FAINT)
        _draw_loss(left, figures)
        _draw_auc(middle, figures)
        _draw_communication(right, figures)
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, dpi=130)
        pyplot.close(canvas)


def _colours(figures: list[Figures]) -> list[str]:
    baseline = baseline_of(figures)
    others = iter(COLOURS[1:] * len(figures))
    return [COLOURS[0] if entry is baseline else next(others) for entry in figures]


def _smooth(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Running mean, and the step each mean is centred on."""
    window = min(SMOOTHING_STEPS, values.size)
    mean = np.convolve(values, np.ones(window) / window, mode="valid")
    return np.arange(mean.size) + window // 2, mean


def _draw_loss(axes: Any, figures: list[Figures]) -> None:
    # The curves lie on one another, so the baseline is broad and the others are dashed on top: both can be seen.
    for number, (entry, colour) in enumerate(zip(figures, _colours(figures), strict=True)):
        steps, mean = _smooth(entry.mean_loss)
        first = number == 0
        axes.plot(entry.mean_loss, color=colour, linewidth=0.6, alpha=0.35 if first else 0.0)
        axes.plot(
            steps,
            mean,
            color=colour,
            linewidth=5 if first else 1.8,
            alpha=0.75 if first else 1.0,
            linestyle="-" if first else (0, (4, 3)),
            label=entry.label,
        )
    _head(axes, "Training loss", _loss_note(figures))
    axes.set_xlabel("step")
    axes.set_ylabel("binary cross-entropy")
    axes.legend(frameon=False, loc="upper right")


def _loss_note(figures: list[Figures]) -> str:
    baseline = baseline_of(figures)
    gaps = [loss_gap(baseline, entry) for entry in figures if entry is not baseline]
    if not gaps:
        return f"running mean over {SMOOTHING_STEPS} steps"
    return "the same bits at every step" if max(gaps) == 0.0 else f"largest relative difference {max(gaps):.1e}"


def _draw_auc(axes: Any, figures: list[Figures]) -> None:
    for number, (entry, colour) in enumerate(zip(figures, _colours(figures), strict=True)):
        epochs = np.arange(1, entry.auc.size + 1)
        first = number == 0
        axes.plot(epochs, entry.auc, "-" if first else "--", color=colour, linewidth=4 if first else 1.6, alpha=0.9)
        axes.plot(epochs, entry.auc, "o", color=colour, markersize=12 if first else 6, label=entry.label)
    last = figures[0].auc
    axes.annotate(
        f"{last[-1]:.4f}", (last.size, last[-1]), xytext=(0, -20), textcoords="offset points", ha="center", color=INK
    )
    axes.set_xticks(np.arange(1, last.size + 1))
    axes.margins(x=0.18, y=0.35)
    _head(axes, "Test AUC", "held-out impressions, after each epoch")
    axes.set_xlabel("epoch")


def _draw_communication(axes: Any, figures: list[Figures]) -> None:
    baseline = baseline_of(figures)
    steps = baseline.comm_ns.size
    everything = np.concatenate([entry.comm_ns for entry in figures]) / 1e3
    low, high = np.percentile(everything, [0.5, 99.5])
    axes.set_yscale("log")
    axes.set_ylim(low / 1.8, high * 1.8)
    axes.set_xlim(0, steps)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    medians = [entry.comm_median_ns / 1e3 for entry in figures]
    bottom, top = np.log(axes.get_ylim())
    heights = _spread([(np.log(median) - bottom) / (top - bottom) for median in medians], gap=0.19)
    for entry, colour, median, height in zip(figures, _colours(figures), medians, heights, strict=True):
        axes.plot(entry.comm_ns / 1e3, "o", color=colour, markersize=2.5, alpha=0.45, markeredgewidth=0)
        axes.axhline(median, color="white", linewidth=3.4)
        axes.axhline(median, color=colour, linewidth=1.8)
        text = f"{entry.label}\n{median:.0f} us"
        if entry is not baseline:
            text += f"\n{baseline.comm_median_ns / entry.comm_median_ns:.1f}x faster"
        ink = FAINT if entry is baseline else colour
        axes.text(1.02, height, text, transform=axes.transAxes, color=ink, va="center", fontweight="bold")
    _head(axes, "Communication time of each step", "all_reduce of the gradients, minimum over ranks; lines: medians")
    axes.set_xlabel("step")
    axes.set_ylabel("microseconds (log scale)")


def _spread(heights: list[float], gap: float) -> list[float]:
    """Push label positions (0 bottom, 1 top) apart, upwards, until neighbours are at least ``gap`` from each other."""
    placed = list(heights)
    order = sorted(range(len(placed)), key=placed.__getitem__)
    for below, above in itertools.pairwise(order):
        placed[above] = max(placed[above], placed[below] + gap)
    return placed


def _head(axes: Any, title: str, note: str) -> None:
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", pad=22)
    axes.text(0, 1.025, note, transform=axes.transAxes, fontsize=9, color=FAINT)
