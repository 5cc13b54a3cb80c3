"""A prepared corpus in pieces reads as one array, and pieces are opened only where something is read."""

import numpy as np
import pytest

from tercet.data.files.problems import Tally
from tercet.data.prepared import Counts, Manifest, PiecewiseArray, Shard

WHOLE = np.arange(23, dtype=np.uint16) * 7
SIZES = [5, 1, 9, 8]
BOUNDS = np.cumsum([0, *SIZES])


@pytest.fixture
def opened() -> list[int]:
    return []


@pytest.fixture
def pieces(opened) -> PiecewiseArray:
    def open_piece(number: int) -> np.ndarray:
        opened.append(number)
        return WHOLE[BOUNDS[number] : BOUNDS[number + 1]]

    return PiecewiseArray(SIZES, WHOLE.dtype, open_piece)


def test_every_slice_is_that_of_the_whole_array(pieces):
    for start in range(-1, 25):
        for stop in range(-1, 25):
            np.testing.assert_array_equal(pieces[start:stop], WHOLE[start:stop])
    np.testing.assert_array_equal(pieces[::3], WHOLE[::3])
    assert pieces[3:9].dtype == WHOLE.dtype


def test_places_are_taken_as_numpy_takes_them(pieces):
    places = np.random.default_rng(0).integers(0, 23, size=(4, 6))
    np.testing.assert_array_equal(pieces.take(places), WHOLE.take(places))
    np.testing.assert_array_equal(pieces[places], WHOLE[places])
    beyond = np.array([-3, 5, 40])
    np.testing.assert_array_equal(pieces.take(beyond, mode="clip"), WHOLE.take(beyond, mode="clip"))
    np.testing.assert_array_equal(pieces[WHOLE > 50], WHOLE[WHOLE > 50])
    assert [pieces[place] for place in (0, 5, -1)] == [WHOLE[0], WHOLE[5], WHOLE[-1]]
    for bad in (23, -24):
        with pytest.raises(IndexError):
            pieces.take([bad])


def test_the_whole_is_joined_where_it_is_asked_for(pieces):
    np.testing.assert_array_equal(np.asarray(pieces), WHOLE)
    np.testing.assert_array_equal(pieces.astype(np.int64), WHOLE.astype(np.int64))
    assert (len(pieces), pieces.shape) == (23, (23,))


def test_only_what_is_read_is_opened(pieces, opened):
    np.asarray(pieces[6:9])
    pieces.take([7, 14])
    pieces.take([20, 1])
    assert opened == [2, 2, 0, 3]


@pytest.mark.parametrize(
    ("name", "digest", "index"),
    [
        ("../private", "ab", "ab"),
        ("/private", "ab", "ab"),
        ("shards/1", "../private", "ab"),
        ("1", "ab", "/private"),
    ],
)
def test_a_manifest_names_no_file_elsewhere(name, digest, index):
    """A shard's name is a path from the manifest, and a hash the name of a copy in the cache."""

    def manifest(name: str, digest: str, index: str) -> str:
        shards = [Shard(name, Counts(), {"tokens": digest}, Tally(), [], {})]
        return Manifest(Counts(), {}, {}, {"document_bytes": index}, Tally(), {}, [], shards).text()

    assert Manifest.read(manifest("shards/00001", "ab" * 32, "cd" * 32), "manifest.json").shards
    with pytest.raises(ValueError, match=r"is no manifest .*it names files elsewhere"):
        Manifest.read(manifest(name, digest, index), "manifest.json")
