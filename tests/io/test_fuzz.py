"""The parsers of torch.save files under libFuzzer, with the sanitizers on, for a bounded time.

FUZZ_SECONDS sets how long (default: 15). Skipped where clang or its fuzzing runtime is not installed; the tests of
io/test_torch_zip.cpp flip bits and cut files everywhere.
"""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [
    "tests/io/fuzz_torch_zip.cpp",
    *(f"io/{name}.cpp" for name in ("pickle_constructors", "pickle_reader", "pickle_value", "range_checksums")),
    *(f"io/{name}.cpp" for name in ("torch_zip_reader", "zip_directory", "atomic_file", "file_system")),
    *(f"io/{name}.cpp" for name in ("checkpoint_manifest", "checksum", "deepspeed_checkpoint_files", "run_record")),
    "base/json.cpp",
]
SANITIZERS = ["-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=undefined"]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("clang++ is not installed")
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "empty.cpp").write_text('extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }')
    probe = subprocess.run(
        [clang, *SANITIZERS, folder / "empty.cpp", "-o", folder / "empty"], capture_output=True, check=False
    )
    if probe.returncode != 0:
        pytest.skip("clang++ has no libFuzzer here")
    torch = pytest.importorskip("torch")
    include = ["-I", ROOT, "-isystem", Path(torch.__file__).parent / "include"]
    objects = []
    compiling = []
    for source in SOURCES:
        objects.append(folder / (Path(source).stem + ".o"))
        words = [clang, "-std=c++20", "-O1", "-g", "-D_GLIBCXX_ASSERTIONS", "-DFMT_HEADER_ONLY", *SANITIZERS, *include]
        compiling.append(subprocess.Popen([*words, "-c", ROOT / source, "-o", objects[-1]]))
        if len(compiling) % 2 == 0:
            compiling[-2].wait()
    assert all(process.wait() == 0 for process in compiling)
    program = folder / "fuzz_torch_zip"
    subprocess.run([clang, *SANITIZERS, *objects, "-lz", "-o", program], check=True)
    return program


def seeds(folder: Path) -> None:
    """Small archives, and pickles of every protocol that is read."""
    torch = pytest.importorskip("torch")
    states = {
        "module": {"w": torch.arange(6.0).reshape(2, 3), "b": torch.zeros(3, dtype=torch.bfloat16)},
        "shapes": [torch.Size([2, 3])],
        "numbers": [1, -(2**40), 0.5, True, None, b"bytes", "text", (1, 2, 3, 4), {"a"}],
    }
    torch.save(states, folder / "archive.pt")
    with zipfile.ZipFile(folder / "archive.pt") as archive:
        (folder / "tensor.pkl").write_bytes(archive.read("archive/data.pkl"))
    del states["module"]
    for protocol in range(2, 6):
        (folder / f"protocol{protocol}.pkl").write_bytes(pickle.dumps(states, protocol=protocol))


def test_no_input_crashes_the_parsers(target: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    seeds(corpus)
    limits = [f"-max_total_time={os.environ.get('FUZZ_SECONDS', '15')}", "-rss_limit_mb=2048", "-timeout=20"]
    # The checksum of the pickle in an archive keeps mutations out: half of the seeds are bare pickles.
    done = subprocess.run(
        [target, corpus, *limits, "-max_len=8192", f"-artifact_prefix={tmp_path}/", "-print_final_stats=1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    executed = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
    assert int(executed[0].split()[-1]) > 1000
