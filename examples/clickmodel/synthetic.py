"""A seeded generator of clicks, for machines from which no package index is reachable.

Same shape as MovieLens-100k: items are shown with Zipf frequencies, genre bags have log-normal sizes with zeros among
them, and the chance of a click comes from a hidden factorisation. As that chance is known, so is the best AUC that any
model can reach; the bound asked of the trained one is a share of it. Called by ``examples/movielens.py``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .data import ClickData
from .metrics import auc

HIDDEN_WIDTH = 2
# Of the way from chance (0.5) to the ceiling. Three epochs reach 0.86 or more over the seeds tried.
CEILING_SHARE = 0.8
GENRES, OCCUPATIONS, AGE_GROUPS = 18, 21, 7


def generate(seed: int, impressions: int = 100_000, users: int = 943, items: int = 1682) -> ClickData:
    """Generate impressions; the same arguments give the same data.

    Parameters
    ----------
    seed : int
        Of NumPy's PCG64 generator; no global generator is touched.
    impressions, users, items : int
        Sizes; the defaults are MovieLens-100k's.

    Returns
    -------
    ClickData
        With ``auc_bound`` a fixed share of the way from chance to the ceiling.

    Raises
    ------
    ValueError
        A size is below 2.
    """
    if min(impressions, users, items) < 2:
        raise ValueError(f"generate: sizes must be 2 or more, got {impressions}, {users}, {items}")
    rng = np.random.default_rng([seed, 0x636C6963])
    user = rng.integers(0, users, impressions)
    item = _zipf(rng, items, impressions)
    occupation = rng.integers(0, OCCUPATIONS, users)
    age_group = rng.integers(0, AGE_GROUPS, users)
    genre_values, genre_offsets = _bags(rng, items)
    logit = _hidden_logit(rng, user, item, occupation, age_group, genre_values, genre_offsets)
    clicked = (rng.random(impressions) < 1.0 / (1.0 + np.exp(-logit))).astype(np.float32)
    return ClickData(
        name="seeded generator",
        user=user,
        item=item,
        clicked=clicked,
        occupation=occupation,
        age_group=age_group,
        genre_values=genre_values,
        genre_offsets=genre_offsets,
        user_dense=rng.standard_normal((users, 2), dtype=np.float32),
        item_dense=rng.standard_normal((items, 2), dtype=np.float32),
        occupations=OCCUPATIONS,
        age_groups=AGE_GROUPS,
        genres=GENRES,
        auc_bound=0.5 + CEILING_SHARE * (auc(clicked, logit) - 0.5),
    )


def _zipf(rng: np.random.Generator, items: int, count: int) -> npt.NDArray[np.int64]:
    weight = 1.0 / np.arange(1, items + 1) ** 0.8
    return rng.choice(rng.permutation(items), size=count, p=weight / weight.sum()).astype(np.int64)


def _bags(rng: np.random.Generator, items: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    sizes = np.minimum(rng.lognormal(0.5, 0.7, items).astype(np.int64), GENRES)
    bags = [rng.choice(GENRES, size=size, replace=False) for size in sizes]
    return np.concatenate(bags).astype(np.int64), np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _hidden_logit(
    rng: np.random.Generator,
    user: npt.NDArray[np.int64],
    item: npt.NDArray[np.int64],
    occupation: npt.NDArray[np.int64],
    age_group: npt.NDArray[np.int64],
    genre_values: npt.NDArray[np.int64],
    genre_offsets: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    """Log-odds of a click, shape (impressions,): biases, side features, and a low-rank taste of users for items."""
    users, items = occupation.size, genre_offsets.size - 1
    genre_factor = rng.standard_normal((GENRES, HIDDEN_WIDTH))
    sizes = np.diff(genre_offsets)
    item_genre = np.zeros((items, HIDDEN_WIDTH))
    np.add.at(item_genre, np.repeat(np.arange(items), sizes), genre_factor[genre_values])
    item_genre /= np.maximum(sizes, 1)[:, None]
    shared_taste = rng.standard_normal((OCCUPATIONS, HIDDEN_WIDTH))[occupation]
    taste = 0.7 * shared_taste + 0.4 * rng.standard_normal((users, HIDDEN_WIDTH))
    style = 0.3 * rng.standard_normal((items, HIDDEN_WIDTH)) + 0.7 * item_genre
    bias = 0.7 * rng.standard_normal(users) + 0.4 * rng.standard_normal(AGE_GROUPS)[age_group]
    appeal = 1.1 * rng.standard_normal(items)
    return bias[user] + appeal[item] + (taste[user] * style[item]).sum(axis=1)
