"""The parsers of untrusted files, under libFuzzer with the sanitizers on, for a bounded time.

FUZZ_SECONDS sets the time for each (default: 5). Skipped if clang or its fuzzing runtime is missing. corpus/ holds
inputs for each parser that together reach the coverage of earlier runs of the fuzzers. corpus.py adds to them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from corpus import PARSERS, seeds, unpack  # noqa: E402
from trainer import CACHE  # noqa: E402


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built fuzzers."""
    clang = shutil.which("clang++")
    if clang is None:
        pytest.skip("clang++ is not installed")
    folder = tmp_path_factory.mktemp("probe")
    (folder / "empty.cpp").write_text('extern "C" int LLVMFuzzerTestOneInput(const char*, unsigned long) { return 0; }')
    words = [clang, "-fsanitize=fuzzer,address,undefined", folder / "empty.cpp", "-o", folder / "empty"]
    if subprocess.run(words, capture_output=True, check=False).returncode != 0:
        pytest.skip("clang++ has no libFuzzer here")
    tools = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}
    made = CACHE / "fuzz"
    flags = [
        "-G",
        "Ninja",
        "-DMPZERO_JOIN_SOURCES=ON",
        f"-DCMAKE_CXX_COMPILER={clang}",
        f"-DCMAKE_C_COMPILER={shutil.which('clang')}",
    ]
    for words in (["cmake", "-S", HERE, "-B", made, *flags], ["cmake", "--build", made]):
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return made


@pytest.mark.parametrize("parser", PARSERS)
def test_no_input_crashes_the_parser(programs: Path, tmp_path: Path, parser: str) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    unpack(parser, corpus)
    seeds(parser, corpus)
    limits = [f"-max_total_time={os.environ.get('FUZZ_SECONDS', '5')}", "-rss_limit_mb=2048", "-timeout=20"]
    done = subprocess.run(
        [programs / f"fuzz_{parser}", corpus, *limits, f"-artifact_prefix={tmp_path}/", "-print_final_stats=1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    executed = [line for line in done.stderr.splitlines() if "number_of_executed_units" in line]
    assert int(executed[0].split()[-1]) > len(list(corpus.iterdir()))
