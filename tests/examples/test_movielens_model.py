"""The AUC against a brute-force count, the generator, the batches and the model."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from clickmodel import data, synthetic
from clickmodel.metrics import auc
from clickmodel.model import Batches, ClickModel
from hypothesis import given
from hypothesis import strategies as st


def auc_by_pairs(labels: list[int], scores: list[float]) -> float:
    """Count all pairs of a click and a non-click; a tie is half a win."""
    clicks = [score for label, score in zip(labels, scores, strict=True) if label]
    others = [score for label, score in zip(labels, scores, strict=True) if not label]
    wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a, b in itertools.product(clicks, others))
    return wins / (len(clicks) * len(others))


# Few distinct scores, so that ties are common.
impression = st.tuples(st.integers(0, 1), st.sampled_from([-1.0, 0.0, 0.25, 0.5, 3.0]) | st.floats(-9, 9))


@given(st.lists(impression, min_size=2, max_size=40).filter(lambda rows: len({label for label, _ in rows}) == 2))
def test_auc_equals_the_count_of_pairs(rows: list[tuple[int, float]]) -> None:
    labels, scores = map(list, zip(*rows, strict=True))
    assert auc(labels, scores) == pytest.approx(auc_by_pairs(labels, scores), abs=1e-12)


@pytest.mark.parametrize(
    ("labels", "scores", "message"),
    [
        ([1, 1], [0.1, 0.2], "needs both classes, got 2 clicks and 0 non-clicks"),
        ([1, 0], [0.1, float("nan")], "a score is NaN"),
        ([1, 0], [0.1], r"labels have shape \(2,\) and scores \(1,\)"),
    ],
)
def test_auc_refuses(labels: list[int], scores: list[float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        auc(labels, scores)


def test_generator_is_a_function_of_its_seed() -> None:
    first, again, other = (synthetic.generate(seed, impressions=500, users=20, items=30) for seed in (1, 1, 2))
    for name, value in vars(first).items():
        np.testing.assert_array_equal(getattr(again, name), value)
    assert not np.array_equal(first.clicked, other.clicked)


def test_generator_has_the_shape_of_the_real_data() -> None:
    made = synthetic.generate(seed=1)
    assert (made.impressions, made.users, made.items) == (100_000, 943, 1682)
    sizes = np.diff(made.genre_offsets)
    assert sizes.min() == 0
    assert sizes.max() > 4
    assert made.genre_offsets[-1] == made.genre_values.size
    shown = np.sort(np.bincount(made.item, minlength=made.items))[::-1]
    assert shown[:168].sum() > 0.35 * made.impressions  # the head of a Zipf law
    assert 0.3 < made.clicked.mean() < 0.7
    assert 0.70 < made.auc_bound < 0.80


def test_generator_refuses_tiny_sizes() -> None:
    with pytest.raises(ValueError, match="must be 2 or more"):
        synthetic.generate(seed=1, users=1)


def test_batches_carry_each_items_bag() -> None:
    made = synthetic.generate(seed=5, impressions=300, users=20, items=30)
    chosen = np.array([7, 250, 7, 0, 33], dtype=np.int64)
    batch = Batches(made, np.arange(200)).make(chosen)
    ends = [*batch.genre_offsets.tolist()[1:], batch.genre_values.numel()]
    for row, (index, start, end) in enumerate(zip(chosen, batch.genre_offsets.tolist(), ends, strict=True)):
        item, user = made.item[index], made.user[index]
        expected = made.genre_values[made.genre_offsets[item] : made.genre_offsets[item + 1]]
        np.testing.assert_array_equal(batch.genre_values[start:end].numpy(), expected)
        assert batch.ids[:, row].tolist() == [user, item, made.occupation[user], made.age_group[user]]
        assert batch.clicked[row] == made.clicked[index]


def test_dense_features_know_nothing_of_held_out_impressions_or_labels() -> None:
    made = synthetic.generate(seed=5, impressions=300, users=20, items=30)
    train, test = np.arange(200), np.arange(200, 300)
    changed = {name: value.copy() for name, value in vars(made).items() if name in ("user", "item", "clicked")}
    changed["clicked"] = 1 - changed["clicked"]
    changed["user"][test], changed["item"][test] = 0, 0
    other = data.ClickData(**(vars(made) | changed))
    torch.testing.assert_close(Batches(made, train).make(train).dense, Batches(other, train).make(train).dense)


def test_model_against_plain_loops() -> None:
    made = synthetic.generate(seed=5, impressions=300, users=20, items=30)
    batches = Batches(made, np.arange(200))
    torch.manual_seed(0)
    model = ClickModel(made, batches.dense_features, width=4)
    empty = np.flatnonzero(np.diff(made.genre_offsets)[made.item] == 0)
    chosen = np.array([1, 2, empty[0]], dtype=np.int64)
    batch = batches.make(chosen)
    logits = model(batch)
    assert logits.shape == (3,)
    weight = {name: table.weight.detach() for name, table in model.tables.items()}
    for row, index in enumerate(chosen):
        item, user = made.item[index], made.user[index]
        bag = made.genre_values[made.genre_offsets[item] : made.genre_offsets[item + 1]]
        genres = weight["genres"][bag].mean(dim=0) if bag.size else torch.zeros(4)
        bottom = model.bottom(batch.dense[row])
        vectors = [bottom, genres, weight["user"][user], weight["item"][item]]
        vectors += [weight["occupation"][made.occupation[user]], weight["age_group"][made.age_group[user]]]
        dots = [torch.dot(a, b) for a, b in itertools.combinations(vectors, 2)]
        expected = model.top(torch.cat([bottom, torch.stack(dots)]))
        torch.testing.assert_close(logits[row], expected[0], rtol=1e-5, atol=1e-6)
    assert not list(model.buffers())  # DDP would broadcast them in every forward pass
