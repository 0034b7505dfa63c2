"""Reading MovieLens-100k: hashes, refusals, parsing, the split, and what happens with no index."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import numpy as np
import pytest
from clickmodel import data


def write_wheel(path: Path, files: dict[str, str]) -> dict[str, str]:
    """Write an archive like the package's; return the SHA-256 of each file."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(data.FOLDER + name, text)
    return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}


def test_reads_the_files_out_of_the_archive(tmp_path: Path, small_files: dict[str, str]) -> None:
    digests = write_wheel(tmp_path / "w.whl", small_files)
    assert data.read_members(tmp_path / "w.whl", digests) == small_files


def test_refuses_a_file_with_another_hash(tmp_path: Path, small_files: dict[str, str]) -> None:
    digests = write_wheel(tmp_path / "w.whl", small_files)
    small_files["ml-100k.user"] += "9\t1\tF\twriter\t1\n"
    write_wheel(tmp_path / "w.whl", small_files)
    with pytest.raises(data.DataError, match=r"ml-100k\.user has SHA-256 .* expected " + digests["ml-100k.user"]):
        data.read_members(tmp_path / "w.whl", digests)


def test_refuses_an_archive_without_a_file(tmp_path: Path, small_files: dict[str, str]) -> None:
    digests = write_wheel(tmp_path / "w.whl", small_files)
    del small_files["ml-100k.item"]
    write_wheel(tmp_path / "w.whl", small_files)
    with pytest.raises(data.DataError, match=r"lacks a file.*ml-100k\.item"):
        data.read_members(tmp_path / "w.whl", digests)


def test_refuses_what_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "w.whl").write_text("<html>not found</html>")
    with pytest.raises(data.DataError, match="is not a wheel"):
        data.read_members(tmp_path / "w.whl")


def test_refuses_a_cached_wheel_with_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_pip_download", lambda folder: pytest.fail("must not download over a cached file"))
    (tmp_path / data.WHEEL_NAME).write_bytes(b"tampered")
    with pytest.raises(data.DataError, match=f"delete {tmp_path / data.WHEEL_NAME} to have it downloaded again"):
        data.fetch_wheel(tmp_path)


def test_keeps_no_download_with_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "_pip_download", lambda folder: (folder / data.WHEEL_NAME).write_bytes(b"other"))
    with pytest.raises(data.DataError, match="downloaded by pip"):
        data.fetch_wheel(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_downloads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def download(folder: Path) -> None:
        calls.append(folder)
        (folder / data.WHEEL_NAME).write_bytes(b"wheel")

    monkeypatch.setattr(data, "_pip_download", download)
    monkeypatch.setattr(data, "WHEEL_SHA256", hashlib.sha256(b"wheel").hexdigest())
    first, second = data.fetch_wheel(tmp_path), data.fetch_wheel(tmp_path)
    assert first == second == tmp_path / data.WHEEL_NAME
    assert first.read_bytes() == b"wheel"
    assert len(calls) == 1


def test_says_that_no_index_is_reachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(data.IndexUnreachable, match=r"pip download recbole==1\.2\.1 failed \(1\): "):
        data.fetch_wheel(tmp_path / "cache")


@pytest.mark.parametrize(
    ("given", "expected"), [({"XDG_CACHE_HOME": "/x"}, "/x"), ({"XDG_CACHE_HOME": "relative"}, None), ({}, None)]
)
def test_cache_folder(given: dict[str, str], expected: str | None) -> None:
    assert data.cache_dir(given) == (Path(expected) if expected else Path.home() / ".cache") / "collectives"


def test_parses(small_files: dict[str, str]) -> None:
    parsed = data.parse(small_files)
    assert (parsed.impressions, parsed.users, parsed.items) == (3, 2, 3)
    np.testing.assert_array_equal(parsed.user, [1, 1, 0])
    np.testing.assert_array_equal(parsed.item, [1, 0, 2])
    np.testing.assert_array_equal(parsed.clicked, [1, 0, 1])  # a rating of 4 is a click, of 3 is none
    np.testing.assert_array_equal(parsed.occupation, [1, 0])
    np.testing.assert_array_equal(parsed.age_group, [0, 5])
    np.testing.assert_array_equal(parsed.genre_values, [1, 2, 0])
    np.testing.assert_array_equal(parsed.genre_offsets, [0, 2, 2, 3])  # the second item has no genre
    np.testing.assert_allclose(parsed.user_dense, [[-1, 0], [1, 1]])
    # The unknown year gets the mean of the others.
    np.testing.assert_allclose(parsed.item_dense[:, 0], np.array([-4, 0, 4]) / np.std([-4, 0, 4]), rtol=1e-6)
    np.testing.assert_array_equal(parsed.item_dense[:, 1], [1, 0, 1])


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("ml-100k.inter", "7\t20", "8\t20", "ratings name user 8, which has no row"),
        ("ml-100k.inter", "7\t20", "7\t21", "ratings name item 21, which has no row"),
        ("ml-100k.user", "occupation:token", "job:token", r"ml-100k\.user: no column occupation"),
        ("ml-100k.item", "\t1998\t", "\t1998", r"ml-100k\.item, line 4: 3 fields where the header has 4"),
    ],
)
def test_refuses_wrong_content(small_files: dict[str, str], name: str, old: str, new: str, message: str) -> None:
    assert old in small_files[name]
    with pytest.raises(data.DataError, match=message):
        data.parse(small_files | {name: small_files[name].replace(old, new)})


def test_saves_and_loads(tmp_path: Path, small_files: dict[str, str]) -> None:
    parsed = data.parse(small_files)
    parsed.save(tmp_path / "d.npz")
    loaded = data.ClickData.load(tmp_path / "d.npz")
    for name, value in vars(parsed).items():
        np.testing.assert_array_equal(getattr(loaded, name), value)
        assert isinstance(getattr(loaded, name), type(value))


def test_split_is_seeded_and_complete() -> None:
    train, test = data.split(1000, seed=3)
    again = data.split(1000, seed=3)
    np.testing.assert_array_equal(train, again[0])
    np.testing.assert_array_equal(test, again[1])
    assert test.size == 200
    np.testing.assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(1000))
    assert not np.array_equal(test, data.split(1000, seed=4)[1])


@pytest.mark.parametrize(("impressions", "held_out"), [(1, 0.2), (10, 0.0), (10, 1.0)])
def test_split_refuses_an_empty_side(impressions: int, held_out: float) -> None:
    with pytest.raises(ValueError, match="leaves one side empty"):
        data.split(impressions, seed=1, held_out=held_out)


def test_the_real_data() -> None:
    try:
        loaded = data.load_movielens()
    except data.IndexUnreachable as error:
        pytest.skip(f"no package index: {error}")
    assert (loaded.impressions, loaded.users, loaded.items) == (100_000, 943, 1682)
    assert (loaded.genres, loaded.occupations) == (19, 21)
    assert int(loaded.clicked.sum()) == 55_375
    assert loaded.auc_bound == 0.77
