"""State files come back to the bit, and damage or another format is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from safetensors.numpy import save

from gadget_svm.core.state_file import StateFileError, encode_state, read_state, write_atomically

ARRAYS = st.dictionaries(
    st.text("abcw_", min_size=1, max_size=5),
    arrays_of.arrays(st.sampled_from([np.float64, np.int64, np.uint8]), arrays_of.array_shapes(min_side=0, max_dims=3)),
    max_size=4,
)
ABOUT = {"sites": ["a", "b"], "n_iter": 3}


@given(arrays=ARRAYS)
def test_what_is_written_is_read(arrays, tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "file.safetensors"
    write_atomically(path, encode_state("model", 2, arrays, ABOUT))
    found, about = read_state(path, "model", 2)
    assert about == ABOUT
    assert set(found) == set(arrays)
    for name, value in arrays.items():
        assert found[name].dtype == value.dtype
        assert found[name].shape == value.shape
        assert found[name].tobytes() == value.tobytes()


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused(place, bit, tmp_path_factory):
    path = tmp_path_factory.mktemp("state") / "file.safetensors"
    content = bytearray(encode_state("model", 1, {"w": np.arange(6.0)}, ABOUT))
    content[place % len(content)] ^= 1 << bit
    path.write_bytes(content)
    try:
        arrays, about = read_state(path, "model", 1)
    except StateFileError:
        return
    assert about == ABOUT  # a bit of padding, which nothing reads
    np.testing.assert_array_equal(arrays["w"], np.arange(6.0))


def test_another_version_or_kind_is_refused_and_kept(tmp_path):
    path = tmp_path / "file.safetensors"
    content = encode_state("model", 1, {"w": np.zeros(2)}, {})
    path.write_bytes(content)
    with pytest.raises(StateFileError, match="version 1 of the model format, and this program reads version 2"):
        read_state(path, "model", 2)
    with pytest.raises(StateFileError, match="not a checkpoint file"):
        read_state(path, "checkpoint", 1)
    assert path.read_bytes() == content


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "file.safetensors"
    path.write_bytes(encode_state("model", 1, {"w": np.zeros(9)}, {})[:-5])
    with pytest.raises(StateFileError, match="truncated, damaged"):
        read_state(path, "model", 1)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        read_state(tmp_path / "nowhere", "model", 1)


def test_a_write_that_fails_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")
    monkeypatch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_of_an_older_format_is_called_so_and_kept(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({"coef_": np.zeros(2)}, metadata={"gadget": '{"format": "gadget-svm/1"}'}))
    content = path.read_bytes()
    with pytest.raises(StateFileError, match="has an older format"):
        read_state(path, "model", 2)
    assert path.read_bytes() == content
