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


def group_of(path: Path) -> str:
    """The tests of one group run in one process. A file is a group, so that its fixtures are made once."""
    name = path.relative_to(HERE).as_posix()
    shared = [group for prefix, group in SHARE.items() if name == prefix or name.startswith(f"{prefix}/")]
    return shared[0] if shared else name


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Several processes (`-n 2 --dist loadgroup`) take a group each; the one that takes longest is started first."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(group_of(item.path)))
    items.sort(key=lambda item: group_of(item.path) != "slurm")
