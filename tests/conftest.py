"""For all tests."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

# One process uses what these share: the virtual cluster, DeepSpeed's compiled operators.
SHARE = {
    "slurm": "slurm",
    "e2e/test_deepspeed_format.py": "deepspeed",
    "e2e/test_deepspeed_resume.py": "deepspeed",
    "interop/test_deepspeed_files.py": "deepspeed",
}
HERE = Path(__file__).parent

# A start in the background ignores SIGINT, and nohup SIGHUP. Programs that the tests start would inherit that and
# ignore what the tests send to them. They do not inherit a handler.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)
    # The hang-up of the terminal, which nohup is for, reaches no program of another session.
    with contextlib.suppress(PermissionError):
        os.setsid()

BUILD = Path(os.environ.get("BUILD_DIR") or HERE.parent / "build")
# ctest and `cmake --install` write these to the build folder.
LOGS = ("Testing", "install_manifest.txt")


def built_files() -> dict[str, tuple[int, int]]:
    """Size and modification time of each file of the build folder, and of the record of the packages in .venv."""
    paths = [Path(folder) / name for folder, _, names in os.walk(BUILD) for name in names]
    found = {}
    for path in [*paths, HERE.parent / ".venv/mpzero-synced"]:
        if path.is_relative_to(BUILD) and path.relative_to(BUILD).parts[0] in LOGS:
            continue
        with contextlib.suppress(FileNotFoundError):
            status = path.lstat()
            found[str(path)] = (status.st_size, status.st_mtime_ns)
    return found


class BuildGuard:
    """Fails the session if a test has changed the build folder, whose programs other tests run at the same time."""

    def __init__(self) -> None:
        self.before: dict[str, tuple[int, int]] = {}

    def pytest_sessionstart(self) -> None:
        self.before = built_files()

    # Before the JUnit file is written, which is to count this as a failed test.
    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        after = built_files()
        changed = sorted(name for name in {*self.before, *after} if self.before.get(name) != after.get(name))
        if not changed:
            return
        shown = "\n".join([*changed[:10], *(["..."] if len(changed) > 10 else [])])
        name = "tests/conftest.py::the_build_folder_is_unchanged"
        report = pytest.TestReport(
            nodeid=name,
            location=("tests/conftest.py", None, "the_build_folder_is_unchanged"),
            keywords={},
            outcome="failed",
            longrepr=f"{len(changed)} files of the build were written while the tests ran:\n{shown}",
            when="teardown",
        )
        session.config.hook.pytest_runtest_logreport(report=report)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_configure(config: pytest.Config) -> None:
    # Of several processes (`-n 2`), the one that starts the others and ends after them.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(BuildGuard())


def group_of(name: str) -> str:
    """The tests of one group run in one process. A file is a group, so that its fixtures are made once."""
    shared = [group for prefix, group in SHARE.items() if name == prefix or name.startswith(f"{prefix}/")]
    return shared[0] if shared else name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Nightly tests are skipped elsewhere. The groups that take longest are started first."""
    if os.environ.get("NIGHTLY") != "1":
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(pytest.mark.skip(reason="nightly: set NIGHTLY=1"))
    first = ["slurm", "deepspeed"]

    def place(item: pytest.Item) -> int:
        group = group_of(item.path.relative_to(HERE).as_posix())
        return first.index(group) if group in first else len(first)

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Several processes (`-n 2`) take a group each."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.split("::")[0].removeprefix("tests/"))

    return ByGroup(config, log)
