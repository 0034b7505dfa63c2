"""A small DLRM: embedding bags and a bottom MLP, pairwise dot products, a top MLP. Called by ``worker``.

Also makes its batches: `Batches` turns impression numbers into tensors, with the genres as one jagged bag.
Source of the architecture: Naumov et al., arXiv 1906.00091.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from .data import ClickData, Ints, standardise

INIT_DEVIATION = 0.05
ONE_HOT = ("user", "item", "occupation", "age_group")


class Batch(NamedTuple):
    """One batch of ``n`` impressions: dense (n, features) float32; ids (4, n) int64 in the order of `ONE_HOT`;
    genre_values (total,) and genre_offsets (n,) int64; clicked (n,) float32.
    """

    dense: Tensor
    ids: Tensor
    genre_values: Tensor
    genre_offsets: Tensor
    clicked: Tensor


class Batches:
    """Makes batches of one data set.

    Parameters
    ----------
    data : ClickData
    train : int64, shape (n,)
        Training impressions. How often a user and an item occur among them are two of the dense features; the labels
        are not looked at, and the held-out impressions are not counted.
    """

    def __init__(self, data: ClickData, train: Ints) -> None:
        self.data = data
        activity = standardise(np.log1p(np.bincount(data.user[train], minlength=data.users)))
        popularity = standardise(np.log1p(np.bincount(data.item[train], minlength=data.items)))
        self._user_dense = np.concatenate([data.user_dense, activity[:, None]], axis=1)
        self._item_dense = np.concatenate([data.item_dense, popularity[:, None]], axis=1)

    @property
    def dense_features(self) -> int:
        return int(self._user_dense.shape[1] + self._item_dense.shape[1])

    def make(self, impressions: Ints) -> Batch:
        """The batch of these impressions, in this order."""
        data = self.data
        user, item = data.user[impressions], data.item[impressions]
        sizes = data.genre_offsets[item + 1] - data.genre_offsets[item]
        offsets = np.cumsum(sizes) - sizes
        # Position k of the jagged result belongs to bag b and is the (k - offsets[b])-th genre of item[b].
        where = np.repeat(data.genre_offsets[item] - offsets, sizes) + np.arange(sizes.sum())
        return Batch(
            torch.from_numpy(np.concatenate([self._user_dense[user], self._item_dense[item]], axis=1)),
            torch.from_numpy(np.stack([user, item, data.occupation[user], data.age_group[user]])),
            torch.from_numpy(data.genre_values[where]),
            torch.from_numpy(offsets),
            torch.from_numpy(data.clicked[impressions]),
        )


class ClickModel(nn.Module):
    """Log-odds of a click.

    Parameters
    ----------
    data : ClickData
        Gives the sizes of the tables.
    dense_features : int
        Width of ``Batch.dense``.
    width : int
        Of every embedding, and of the bottom MLP's output.
    """

    def __init__(self, data: ClickData, dense_features: int, width: int = 16) -> None:
        super().__init__()
        rows = (data.users, data.items, data.occupations, data.age_groups)
        self.tables = nn.ModuleDict(
            {name: nn.EmbeddingBag(count, width, mode="sum") for name, count in zip(ONE_HOT, rows, strict=True)}
        )
        self.tables["genres"] = nn.EmbeddingBag(data.genres, width, mode="mean")
        for parameter in self.tables.parameters():
            nn.init.normal_(parameter, std=INIT_DEVIATION)
        self.bottom = nn.Sequential(nn.Linear(dense_features, 32), nn.ReLU(), nn.Linear(32, width))
        vectors = len(ONE_HOT) + 2
        pairs = vectors * (vectors - 1) // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 1)
        )
        # Not buffers: DDP would broadcast those in each forward pass, which is communication that no job needs.
        self.first, self.second = torch.triu_indices(vectors, vectors, offset=1)

    def forward(self, batch: Batch) -> Tensor:
        """Log-odds, shape (n,), of a `Batch` of ``n`` impressions."""
        bottom = self.bottom(batch.dense)
        vectors = [bottom, self.tables["genres"](batch.genre_values, batch.genre_offsets)]
        vectors += [self.tables[name](ids.unsqueeze(1)) for name, ids in zip(ONE_HOT, batch.ids, strict=True)]
        stacked = torch.stack(vectors, dim=1)
        dots = torch.bmm(stacked, stacked.transpose(1, 2))[:, self.first, self.second]
        logits: Tensor = self.top(torch.cat([bottom, dots], dim=1))
        return logits.squeeze(1)
