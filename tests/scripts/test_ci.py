""".ci/run, with stand-ins for ./test.sh, the build and ctest: both parts count in its last line and its exit status."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]

BUILD = """build_programs() {{
  echo "$BUILD_DIR $MPZERO_GPU_ARCHITECTURES $*" >built
  {}
}}
"""
CTEST = """#!/bin/bash
mkdir -p build-gpu
echo '<testsuite><testcase name="a_gpu"><{}/></testcase><testcase name="b"/></testsuite>' >build-gpu/ctest.xml
exit {}
"""


@pytest.mark.parametrize(
    ("tests", "build", "ctest", "sum_", "status"),
    [
        ("echo '5 passed, 0 failed, 1 skipped'", "true", ("skipped", 0), "7 passed, 0 failed, 2 skipped", 0),
        ("echo '4 passed, 1 failed, 1 skipped'; exit 1", "true", ("skipped", 0), "6 passed, 1 failed, 2 skipped", 1),
        ("echo 'mpzero: error'; exit 2", "true", ("skipped", 0), "2 passed, 1 failed, 1 skipped", 1),
        ("echo '5 passed, 0 failed, 1 skipped'", "exit 2", ("skipped", 0), "5 passed, 1 failed, 1 skipped", 1),
        ("echo '5 passed, 0 failed, 1 skipped'", "true", ("failure", 8), "7 passed, 1 failed, 1 skipped", 1),
        ("echo '5 passed, 0 failed, 1 skipped'", "true", ("skipped", 8), "7 passed, 1 failed, 2 skipped", 1),
    ],
)
def test_both_parts_count(tmp_path: Path, tests: str, build: str, ctest: tuple[str, int], sum_: str, status: int):
    def program(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    (tmp_path / ".ci").mkdir()
    shutil.copy(REPOSITORY / ".ci/run", tmp_path / ".ci/run")
    (tmp_path / "logs").mkdir()
    program("test.sh", f'#!/bin/bash\necho "$# ${{MPZERO_GPU_ARCHITECTURES-unset}}" >tested\n{tests}\n')
    for part in ("common", "install", "environment"):
        program(f"scripts/{part}.sh", "")
    program("scripts/build.sh", BUILD.format(build))
    shutil.copy(REPOSITORY / "scripts/count_tests.py", tmp_path / "scripts")
    program(".venv/bin/ctest", CTEST.format(*ctest))
    program("bin/apt-get", "#!/bin/bash\nexit 1\n")
    environment = {name: value for name, value in os.environ.items() if name != "MPZERO_GPU_ARCHITECTURES"}
    environment["PATH"] = f"{tmp_path}/bin:{environment['PATH']}"
    result = subprocess.run(
        [tmp_path / ".ci/run"], cwd="/", env=environment, capture_output=True, text=True, check=False
    )
    assert result.stdout.splitlines()[-1] == sum_, result.stdout + result.stderr
    assert result.returncode == status
    # As a user starts it: without an argument, and without GPU kernels.
    assert (tmp_path / "tested").read_text() == "0 unset\n"
    assert (
        tmp_path / "built"
    ).read_text() == f"{tmp_path}/build-gpu 80-real;90 on 0 mpzero test_doctor tests/gpu/all\n"
