"""For all tests."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

# One process after another uses what these tests share: the virtual cluster, and the build folder's ninja.
SHARE = {"slurm": "slurm", "docs/test_walk_through.py": "slurm"}
HERE = Path(__file__).parent

# Who is started in the background may ignore Ctrl-C, and so would everything that the tests start and then interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)


def group_of(name: str) -> str:
    """The tests of one group run in one process. A file is a group, so that its fixtures are made once."""
    shared = [group for prefix, group in SHARE.items() if name == prefix or name.startswith(f"{prefix}/")]
    return shared[0] if shared else name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The group that takes longest is started first."""
    items.sort(key=lambda item: group_of(item.path.relative_to(HERE).as_posix()) != "slurm")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Several processes (`-n 2`) take a group each."""
    from xdist.scheduler import LoadScopeScheduling

    class ByGroup(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid.split("::")[0].removeprefix("tests/"))

    return ByGroup(config, log)
