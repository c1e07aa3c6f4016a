"""A token file has checksums throughout, even if they are added later."""

import subprocess

import h5py
import numpy as np
import pytest
import xxhash

from .conftest import command, prepare_module, read_tokens

TokenFile = prepare_module("token_file").TokenFile
rewriting = prepare_module("rewriting")
PrepareError = prepare_module("").PrepareError

TOKENS = (np.arange(1000) * 7919 % 65536).astype(np.uint16)
OFFSETS = np.array([0, 0, 10, 500, 500, 1000], np.uint64)
ATTRIBUTES = {"vocab_size": 65536, "eos_token_id": 7, "tokenizer": "naïve", "source": "text train"}
SPECIAL = {"bos_token_id": 3, "add_bos": 1, "tokenizer_hash": "xxh3:0123456789abcdef", "special_tokens": "ids"}
SPECIAL |= {"special_tokens_in_text": 5}


def check_checksums(path, block: int) -> None:
    """Compares with xxhash over the tokens that h5py reads."""
    with h5py.File(path) as file:
        tokens, table = file["tokens"], file["tokens_xxh3"]
        stored = tokens[:]
        assert tokens.attrs["xxh3_64"].decode() == xxhash.xxh3_64_hexdigest(stored.tobytes())
        assert table.attrs["block_size"] == block == tokens.chunks[0]
        blocks = [stored[begin : begin + block] for begin in range(0, len(stored), block)]
        assert list(table[:]) == [xxhash.xxh3_64_intdigest(part.tobytes()) for part in blocks]
        assert all(file[name].fletcher32 for name in ("tokens", "document_offsets", "tokens_xxh3"))
        for node in (file, tokens, table):
            for name in node.attrs:
                # A text of variable length would be in a heap, which has no checksum.
                assert not node.attrs.get_id(name).get_type().is_variable_str() if is_text(node, name) else True
        assert b"GCOL" not in path.read_bytes()


def is_text(node, name: str) -> bool:
    return isinstance(node.attrs.get_id(name).get_type(), h5py.h5t.TypeStringID)


@pytest.mark.parametrize("pieces", [[1000], [1, 63, 64, 65, 0, 807], [100] * 10])
def test_checksums_are_those_of_the_tokens_for_any_pieces(tmp_path, pieces):
    file = TokenFile(tmp_path / "a.h5", TOKENS.dtype, chunk=64)
    for begin, size in zip(np.cumsum([0, *pieces]), pieces, strict=False):
        file.append(TOKENS[begin : begin + size], np.array([size] if size else [], np.int64))
    file.commit(ATTRIBUTES, {"dataset": "x"})
    check_checksums(tmp_path / "a.h5", 64)
    assert np.array_equal(read_tokens(tmp_path / "a.h5").tokens, TOKENS)


def test_more_blocks_than_a_chunk_of_checksums(tmp_path):
    tokens = np.tile(TOKENS, 3)
    file = TokenFile(tmp_path / "a.h5", TOKENS.dtype, chunk=2)
    file.append(tokens[:2500], np.array([], np.int64))
    file.append(tokens[2500:], np.array([500]))
    file.commit(ATTRIBUTES, {"dataset": "x"})
    check_checksums(tmp_path / "a.h5", 2)


def write_older(path, *, tokens=TOKENS, offsets=OFFSETS, **attributes) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("tokens", data=tokens, chunks=(128,), maxshape=(None,))
        file["document_offsets"] = offsets
        file.attrs.update({"format_version": 1, **ATTRIBUTES, **attributes})


@pytest.mark.parametrize("special", [{}, SPECIAL])
def test_rewriting_keeps_all_and_adds_checksums(tmp_path, capsys, monkeypatch, special):
    monkeypatch.setattr(rewriting, "BLOCK", 3)  # several blocks of both
    path = tmp_path / "a.h5"
    write_older(path, arguments='{"dataset": "books", "content": null}', note="mine", **special)
    rewriting.rewrite(path)
    check_checksums(path, 32_768)
    written = read_tokens(path)
    assert np.array_equal(written.tokens, TOKENS) and written.tokens.dtype == TOKENS.dtype
    assert np.array_equal(written.offsets, OFFSETS)
    record = {"format_version": 1, "max_token_id": TOKENS.max(), "arguments": '{"dataset": "books", "content": null}'}
    assert written.attributes == {**ATTRIBUTES, **record, **special}
    said = capsys.readouterr().out
    assert "rewritten with checksums, 1,000 tokens" in said
    assert "do not belong in a token file: note." in said
    before = path.read_bytes()
    rewriting.rewrite(path)
    assert "already has checksums" in capsys.readouterr().out
    assert path.read_bytes() == before


def test_rewriting_goes_through_links_and_keeps_the_mode(tmp_path):
    path, link = tmp_path / "data" / "a.h5", tmp_path / "link.h5"
    path.parent.mkdir()
    link.symlink_to("data/a.h5")
    for mode in (0o640, 0o444):
        path.unlink(missing_ok=True)
        write_older(path)
        path.chmod(mode)
        rewriting.rewrite(link)
        assert link.is_symlink()
        check_checksums(path, 32_768)
        assert path.stat().st_mode & 0o7777 == mode
    assert sorted(entry.name for entry in tmp_path.rglob("*")) == ["a.h5", "data", "link.h5"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"offsets": np.array([0, 700, 600, 1000], np.uint64)}, "/document_offsets is not ascending"),
        ({"offsets": np.array([0, 700], np.uint64)}, "documents end at token 700, but the file has 1,000 tokens"),
        ({"offsets": np.array([5, 1000], np.uint64)}, "/document_offsets is not"),
        ({"tokens": TOKENS.astype(np.int64)}, "/tokens is not a non-empty one-dimensional uint16 or uint32"),
        ({"format_version": 2}, "format version 2 is not supported"),
    ],
)
def test_an_invalid_token_file_is_left_unchanged(tmp_path, change, words):
    path = tmp_path / "a.h5"
    write_older(path, **change)
    before = path.read_bytes()
    with pytest.raises(PrepareError, match=words) as error:
        rewriting.rewrite(path)
    assert str(path) in str(error.value)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.h5"]


def test_tokens_that_were_never_written_get_no_checksums(tmp_path):
    path = tmp_path / "a.h5"
    write_older(path)
    with h5py.File(path, "r+") as file:
        file["tokens"].resize((5000,))
        file["tokens"][4900:] = 1
        del file["document_offsets"]
        file["document_offsets"] = np.array([0, 5000], np.uint64)
    with pytest.raises(PrepareError, match="/tokens is incomplete: a part was never written"):
        rewriting.rewrite(path)


def test_rewrite_takes_no_other_argument(tmp_path):
    write_older(tmp_path / "a.h5")

    def run(*arguments):  # the fixture `prepare` adds a tokenizer
        return subprocess.run(command(*arguments), cwd=tmp_path, capture_output=True, text=True, timeout=300)

    for others in (["--tokenizer", "bytes"], ["b.txt"], ["--overwrite"]):
        process = run("--rewrite=a.h5", *others)
        assert process.returncode == 2
        assert (
            "cannot be combined with other arguments" in process.stderr or "not allowed with argument" in process.stderr
        )
    process = run("--rewrite", "b.h5")
    assert process.returncode == 2
    assert process.stderr == "prepare_data.py: b.h5 is not a file: pass the token file to --rewrite.\n"
    process = run("--rewrite", "a.h5")
    assert process.returncode == 0, process.stderr
    check_checksums(tmp_path / "a.h5", 32_768)


def damage_heap(path) -> None:
    """Changes a size in the heap of texts to one that HDF5 2.0 never finishes reading."""
    stored = bytearray(path.read_bytes())
    first_object = stored.find(b"GCOL") + 16
    size = slice(first_object + 8, first_object + 16)
    stored[size] = (int.from_bytes(stored[size], "little") ^ 512).to_bytes(8, "little")
    path.write_bytes(stored)


def test_a_damaged_heap_of_texts_is_refused_if_hdf5_hangs(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    write_older(tmp_path / "a.h5", arguments="{}")
    damage_heap(tmp_path / "a.h5")
    before = (tmp_path / "a.h5").read_bytes()
    for arguments in (["a.txt", "a.h5", "--tokenizer", "bytes", "--if_missing"], ["--rewrite", "a.h5"]):
        process = subprocess.run(command(*arguments), cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert process.returncode == 2, process.stderr
        assert "a.h5 cannot be read" in process.stderr and "is damaged" in process.stderr
        assert len(process.stderr.strip().splitlines()) == 1
    assert (tmp_path / "a.h5").read_bytes() == before
