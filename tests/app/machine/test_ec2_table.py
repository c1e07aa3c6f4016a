"""docs/ec2.md agrees with the program's table of EC2's instance types (app/machine/ec2_instances.inc)."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(
    r'^\{"(?P<type>[^"]+)", (?P<gpus>\d+), "(?P<gpu>[^"]+)", (?P<memory>\d+), (?P<efa>\d+), (?P<gigabits>\d+), '
    r'(?P<nvlink>\d+), (?P<direct>true|false), "[^"]+", '
    r"(?P<vcpus>\d+), (?P<host>\d+), (?P<host_rate>\d+), (?P<pcie>\d+)\},$",
    re.MULTILINE,
)


@dataclass
class Type:
    gpus: str  # "8 × A100 40 GB"
    efa: int
    gigabits: int
    nvlink: int  # GB/s; 0: PCIe
    gpu_direct: bool


def program() -> dict[str, Type]:
    text = (ROOT / "app/machine/ec2_instances.inc").read_text()
    rows = list(ROW.finditer(text))
    assert len(rows) == text.count('{"')
    return {
        row["type"]: Type(
            f"{row['gpus']} × {row['gpu']} {row['memory']} GB",
            int(row["efa"]),
            int(row["gigabits"]),
            int(row["nvlink"]),
            row["direct"] == "true",
        )
        for row in rows
    }


def documented() -> dict[str, Type]:
    lines = (ROOT / "docs/ec2.md").read_text().splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if re.match(r"\| [pg]\w*[-.]", line)
    ]
    types = {}
    for kind, gpus, efa, gigabits, link, direct, *_ in rows:
        assert direct in ("required", "not guaranteed"), kind
        nvlink = re.match(r"NVLink, ([\d,]+) GB/s", link)
        assert nvlink or link == "PCIe", kind
        speed = int(nvlink[1].replace(",", "")) if nvlink else 0
        types[kind] = Type(gpus, int(efa), int(gigabits.replace(",", "")), speed, direct == "required")
    return types


@pytest.mark.parametrize("kind", sorted(documented()))
def test_the_page_agrees_with_the_program(kind):
    assert documented()[kind] == program()[kind]


def test_the_page_has_every_type_of_several_cards_or_nvlink():
    """The others have one device or none; the sentence after the table has the range of Gb/s of the former."""
    page, table = documented(), program()
    assert {kind for kind, what in table.items() if what.efa > 1 or what.nvlink > 0} <= set(page)
    others = [what for kind, what in table.items() if kind not in page and not kind.startswith("p") and what.efa > 0]
    assert {what.efa for what in others} == {1}
    low, high = min(what.gigabits for what in others), max(what.gigabits for what in others)
    assert f"one EFA device ({low} to {high} Gb/s)" in " ".join((ROOT / "docs/ec2.md").read_text().split())
