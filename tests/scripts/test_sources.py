"""The scripts as text: what each program sources."""

import re
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


@pytest.mark.parametrize("program", PROGRAMS[:2])
def test_what_the_common_scripts_leave_to_a_program_is_there(program):
    assert {"run_long", "end_with"} <= set(functions(program))
