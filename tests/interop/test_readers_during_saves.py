"""zero_to_fp32 and mpzero checkpoint while a run saves and prunes without pauses."""

import re
import subprocess
from contextlib import contextmanager

import pytest
from trainer import BUILD

safetensors = pytest.importorskip("safetensors.numpy")

READS = 20
# The message of a reader whose checkpoint was replaced at each of its attempts.
GIVEN_UP = "by another process while it was being read; run the command again"


@contextmanager
def publishing(folder, file_format, how):
    """Another process saves into `folder` until the block ends."""
    process = subprocess.Popen(
        [BUILD / "tests/publish_loop", folder, file_format, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert process.stdout.readline() == b"ready\n"
        yield
        assert process.poll() is None
    finally:
        process.stdin.close()
        assert process.wait(timeout=60) == 0


@pytest.fixture(params=["hdf5", "deepspeed"])
def file_format(request):
    return request.param


@pytest.mark.parametrize("how", ["replace", "prune"])
def test_a_conversion_is_of_one_checkpoint(programs, tmp_path, file_format, how):
    folder = tmp_path / "checkpoints"
    converted = 0
    with publishing(folder, file_format, how):
        for i in range(READS):
            done = programs.zero_to_fp32(folder, tmp_path / f"out-{i}", check=False)
            said = done.stderr.decode()
            assert "damaged" not in said
            if done.returncode != 0:
                assert GIVEN_UP in said, said
                continue
            step = int(re.search(r"Wrote step (\d+) of", done.stdout.decode())[1])
            weights = safetensors.load_file(tmp_path / f"out-{i}" / "model.safetensors")
            assert {value for weight in weights.values() for value in (weight.min(), weight.max())} == {step}
            converted += 1
    assert converted > 0


@pytest.mark.parametrize("how", ["replace", "prune"])
def test_what_verify_and_ls_say_is_true(programs, tmp_path, file_format, how):
    folder = tmp_path / "checkpoints"
    with publishing(folder, file_format, how):
        for i in range(READS):
            done = programs.run("bin/mpzero", "checkpoint", ("verify", "ls")[i % 2], folder, check=False)
            said = (done.stdout + done.stderr).decode()
            assert "damaged" not in said, said
            assert "filesystem error" not in said, said
            if done.returncode != 0:
                assert GIVEN_UP in said or "contains no checkpoints" in said, said
