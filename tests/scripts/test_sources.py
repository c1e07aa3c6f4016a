"""The scripts as text: what each program sources."""

import ast
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ["sbatch/train.sbatch", "singlenode/train-singlenode.sh", "test.sh"]


def functions(program: str) -> list[str]:
    text = (ROOT / program).read_text()
    parts = re.search(r"^for part in (.*); do$", text, re.MULTILINE).group(1).split()
    texts = [text, *((ROOT / f"scripts/{part}.sh").read_text() for part in parts)]
    return [name for each in texts for name in re.findall(r"^(\w+)\(\) [{(]", each, re.MULTILINE)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_function_is_defined_once_in_whatever_order_the_scripts_are_sourced(program):
    counts = Counter(functions(program))
    assert len(counts) > 20
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_the_common_scripts_leave_to_a_program_exists(program):
    assert {"run_long", "end_with"} <= set(functions(program))


OWN = ("requeue", "run_failure", "run_files")
FOLDERS = ("scripts/requeue/*.py", "app/run_failure/*.py", "app/run_files/*re*.py", "app/run_files/untrusted.py")
OF_REQUEUE = [path for folder in FOLDERS for path in ROOT.glob(folder)]


@pytest.mark.parametrize("path", sorted(OF_REQUEUE), ids=lambda path: path.name)
def test_the_requeue_program_runs_with_a_nodes_own_python(path):
    # Python 3.8, and nothing of .venv: a node may lack both.
    tree = ast.parse(path.read_text(), feature_version=(3, 8))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert {name.split(".")[0] for name in imported} <= {*sys.stdlib_module_names, *OWN}
