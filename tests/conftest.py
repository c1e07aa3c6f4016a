"""For all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# One process uses what these share: the virtual cluster, the build folder's ninja, DeepSpeed's compiled operators.
SHARE = {
    "slurm": "slurm",
    "docs/test_walk_through.py": "slurm",
    "journeys/test_scripts_one_machine.py": "slurm",
    "e2e/test_deepspeed_format.py": "deepspeed",
    "e2e/test_deepspeed_resume.py": "deepspeed",
    "interop/test_deepspeed_files.py": "deepspeed",
}
HERE = Path(__file__).parent

# Who is started in the background may ignore Ctrl-C, and so would everything that the tests start and then interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def group_of(name: str) -> str:
    """The tests of one group run in one process. A file is a group, so that its fixtures are made once."""
    shared = [group for prefix, group in SHARE.items() if name == prefix or name.startswith(f"{prefix}/")]
    return shared[0] if shared else name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups that take longest are started first."""
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
