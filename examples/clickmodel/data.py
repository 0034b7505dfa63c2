"""The data of the main job: MovieLens-100k, read at run time out of a package that carries it.

GroupLens permits use for research but not redistribution, so no byte of it is part of this project: the recbole wheel
is downloaded with pip into the user's cache, checked by SHA-256, and the three files are read inside the archive,
checked again, and turned into arrays. Called by ``examples/movielens.py``; ``ClickData`` is used by every other module.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

PACKAGE = "recbole==1.2.1"
WHEEL_NAME = "recbole-1.2.1-py3-none-any.whl"
WHEEL_SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
FOLDER = "recbole/dataset_example/ml-100k/"
FILE_SHA256 = {
    "ml-100k.inter": "4edb74e2a81178c2ba9ff381495f754f996c4aea351b1272ca36b43da0935eff",
    "ml-100k.user": "4f670007d9cfbeb9807e757209af1555b9bcc186bde25e767f67cb67c6dd5972",
    "ml-100k.item": "51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
}
LICENCE = (
    "MovieLens-100k, by GroupLens Research, University of Minnesota: for research use, with no redistribution and no "
    "commercial use without their permission. It is read from pip's download in your cache; nothing of it is kept here."
)
CLICK_RATING = 4.0  # a rating of this or more counts as a click
AUC_BOUND = 0.77  # a plain model of this kind reaches 0.78 in three epochs
# The age groups that MovieLens itself uses in its larger releases: under 18, 18-24, 25-34, 35-44, 45-49, 50-55, 56+.
AGE_EDGES = (18, 25, 35, 45, 50, 56)
PIP_TIMEOUT_S = 120

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


class IndexUnreachable(RuntimeError):
    """pip could not download the package; the message holds pip's own words."""


class DataError(RuntimeError):
    """The data are not what they should be: a hash, a column or an id is wrong."""


@dataclass(frozen=True)
class ClickData:
    """Impressions with their users and items, as arrays.

    Attributes
    ----------
    name : str
        What to call it in output.
    user, item : int64, shape (impressions,)
        Row numbers, dense from 0.
    clicked : float32, shape (impressions,)
        1 where clicked, else 0.
    occupation, age_group : int64, shape (users,)
    genre_values : int64, shape (total,)
        All items' genres, one item after the other.
    genre_offsets : int64, shape (items + 1,)
        Item i owns ``genre_values[genre_offsets[i]:genre_offsets[i + 1]]``: a bag that may be empty.
    user_dense, item_dense : float32, shape (users, du) and (items, di)
        Numeric features, roughly standardised.
    occupations, age_groups, genres : int
        Rows of those tables.
    auc_bound : float
        What a trained model must reach on held-out impressions.
    """

    name: str
    user: Ints
    item: Ints
    clicked: Floats
    occupation: Ints
    age_group: Ints
    genre_values: Ints
    genre_offsets: Ints
    user_dense: Floats
    item_dense: Floats
    occupations: int
    age_groups: int
    genres: int
    auc_bound: float

    @property
    def impressions(self) -> int:
        return int(self.user.size)

    @property
    def users(self) -> int:
        return int(self.occupation.size)

    @property
    def items(self) -> int:
        return int(self.genre_offsets.size - 1)

    def save(self, path: Path) -> None:
        """Write all fields to one .npz file, for the ranks to load."""
        fields: dict[str, Any] = {name: np.asarray(value) for name, value in vars(self).items()}
        np.savez(path, **fields)

    @classmethod
    def load(cls, path: Path) -> ClickData:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            return cls(**{name: stored[name] if stored[name].ndim else stored[name].item() for name in stored.files})


def split(impressions: int, seed: int, held_out: float = 0.2) -> tuple[Ints, Ints]:
    """Seeded random split of impression numbers into (train, test).

    Raises
    ------
    ValueError
        Either side would be empty.
    """
    test_size = round(impressions * held_out)
    if not 0 < test_size < impressions:
        raise ValueError(f"split: {held_out} of {impressions} impressions leaves one side empty")
    order = np.random.default_rng(seed).permutation(impressions).astype(np.int64)
    return order[test_size:], order[:test_size]


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the wheel is kept: ``$XDG_CACHE_HOME/collectives``, or ``~/.cache/collectives`` (XDG base directories)."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The specification says that a relative path there is invalid and must be ignored.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "collectives"


def fetch_wheel(cache: Path) -> Path:
    """Path of the verified wheel, downloaded with pip when the cache lacks it.

    Raises
    ------
    IndexUnreachable
        pip is missing or could not download.
    DataError
        The file in the cache, or the one just downloaded, has another hash.
    """
    wheel = cache / WHEEL_NAME
    if not wheel.exists():
        cache.mkdir(parents=True, exist_ok=True)
        # Downloaded beside its place and then renamed, so that an interrupted download never looks like a wheel.
        with tempfile.TemporaryDirectory(dir=cache) as scratch:
            _pip_download(Path(scratch))
            _check_hash(WHEEL_NAME, (Path(scratch) / WHEEL_NAME).read_bytes(), WHEEL_SHA256, "downloaded by pip")
            os.replace(Path(scratch) / WHEEL_NAME, wheel)
    _check_hash(WHEEL_NAME, wheel.read_bytes(), WHEEL_SHA256, f"delete {wheel} to have it downloaded again")
    return wheel


def read_members(wheel: Path, expected: Mapping[str, str] = FILE_SHA256) -> dict[str, str]:
    """The text of the named files in the wheel's MovieLens folder, each checked against its SHA-256.

    Raises
    ------
    DataError
        A file is missing from the archive or has another hash, or the archive cannot be read.
    """
    texts: dict[str, str] = {}
    try:
        with zipfile.ZipFile(wheel) as archive:
            for name, digest in expected.items():
                content = archive.read(FOLDER + name)
                _check_hash(name, content, digest, f"inside {wheel}")
                texts[name] = content.decode("utf-8")
    except KeyError as error:
        raise DataError(f"{wheel} lacks a file of MovieLens-100k: {error}") from error
    except zipfile.BadZipFile as error:
        raise DataError(f"{wheel} is not a wheel: {error}; delete it to have it downloaded again") from error
    return texts


def parse(texts: Mapping[str, str]) -> ClickData:
    """MovieLens-100k's three files as arrays.

    Parameters
    ----------
    texts : mapping
        Contents of ml-100k.inter, ml-100k.user and ml-100k.item: tab-separated, with a ``name:type`` header.

    Raises
    ------
    DataError
        A column is missing, or a rating names a user or item without a row.
    """
    users = _columns(texts["ml-100k.user"], "ml-100k.user", ("user_id", "age", "gender", "occupation"))
    items = _columns(texts["ml-100k.item"], "ml-100k.item", ("item_id", "release_year", "class"))
    ratings = _columns(texts["ml-100k.inter"], "ml-100k.inter", ("user_id", "item_id", "rating"))
    genre_names, bags = _vocabulary([names.split() for names in items["class"]])
    occupation_names, occupations = _vocabulary([[name] for name in users["occupation"]])
    age = np.array(users["age"], dtype=np.float32)
    male = np.array([gender == "M" for gender in users["gender"]], dtype=np.float32)
    year, known = _years(items["release_year"])
    return ClickData(
        name="MovieLens-100k",
        user=_row_numbers("user", ratings["user_id"], users["user_id"]),
        item=_row_numbers("item", ratings["item_id"], items["item_id"]),
        clicked=(np.array(ratings["rating"], dtype=np.float32) >= CLICK_RATING).astype(np.float32),
        occupation=np.concatenate(occupations),
        age_group=np.digitize(age, AGE_EDGES).astype(np.int64),
        genre_values=np.concatenate(bags),
        genre_offsets=np.cumsum([0, *(len(bag) for bag in bags)], dtype=np.int64),
        user_dense=np.stack([standardise(age), male], axis=1),
        item_dense=np.stack([standardise(year), known], axis=1),
        occupations=len(occupation_names),
        age_groups=len(AGE_EDGES) + 1,
        genres=len(genre_names),
        auc_bound=AUC_BOUND,
    )


def load_movielens(cache: Path | None = None) -> ClickData:
    """MovieLens-100k, downloaded when needed. Raises as `fetch_wheel`, `read_members` and `parse` do."""
    return parse(read_members(fetch_wheel(cache or cache_dir())))


def standardise(values: npt.ArrayLike) -> Floats:
    """Shift and scale to mean 0 and standard deviation 1; a constant column becomes 0."""
    array = np.asarray(values, dtype=np.float64)
    deviation = array.std()
    return ((array - array.mean()) / (deviation if deviation > 0 else 1.0)).astype(np.float32)


def _pip_download(folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--retries=1"]
    command += ["--disable-pip-version-check", "--quiet", f"--dest={folder}", PACKAGE]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise IndexUnreachable(f"pip download {PACKAGE} gave no answer within {PIP_TIMEOUT_S} s") from error
    if done.returncode != 0 or not (folder / WHEEL_NAME).exists():
        said = [line for line in done.stderr.splitlines() if line.strip()] or ["no output"]
        raise IndexUnreachable(f"pip download {PACKAGE} failed ({done.returncode}): {said[-1].strip()}")


def _check_hash(name: str, content: bytes, expected: str, where: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise DataError(f"{name} has SHA-256 {found}, expected {expected} ({where})")


def _columns(text: str, name: str, wanted: tuple[str, ...]) -> dict[str, list[str]]:
    lines = text.splitlines()
    header = [column.split(":")[0] for column in lines[0].split("\t")] if lines else []
    missing = [column for column in wanted if column not in header]
    if missing:
        raise DataError(f"{name}: no column {', '.join(missing)}; the header has {header}")
    rows = [line.split("\t") for line in lines[1:] if line]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise DataError(f"{name}, line {number}: {len(row)} fields where the header has {len(header)}")
    return {column: [row[header.index(column)] for row in rows] for column in wanted}


def _vocabulary(bags: list[list[str]]) -> tuple[list[str], list[Ints]]:
    """Distinct names in sorted order, and each bag as their numbers."""
    names = sorted({name for bag in bags for name in bag})
    number = {name: index for index, name in enumerate(names)}
    return names, [np.array([number[name] for name in bag], dtype=np.int64) for bag in bags]


def _row_numbers(kind: str, used: list[str], known: list[str]) -> Ints:
    number = {token: index for index, token in enumerate(known)}
    strangers = sorted(set(used) - number.keys())
    if strangers:
        raise DataError(f"ratings name {kind} {strangers[0]}, which has no row of features")
    return np.array([number[token] for token in used], dtype=np.int64)


def _years(tokens: list[str]) -> tuple[Floats, Floats]:
    """Release years with the mean where the file has none (two rows), and 1 where it was known."""
    known = np.array([token.isdigit() for token in tokens])
    if not known.any():
        raise DataError("ml-100k.item: no row has a release year")
    year = np.array([float(token) if token.isdigit() else 0.0 for token in tokens], dtype=np.float32)
    year[~known] = year[known].mean()
    return year, known.astype(np.float32)
