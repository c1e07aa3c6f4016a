"""kubernetes/instances.csv offers of a node what Karpenter leaves of what app/machine/ec2_instances.inc says it has.

Oracle: Karpenter's AWS provider, pages "Settings" (VM_MEMORY_OVERHEAD_PERCENT) and "Instance Types", and EKS's reserve:
7.5% of the memory are the hypervisor's and the system's; 255 MiB, 11 for each pod, and 100 for the eviction threshold
are kept; of the CPUs 6% of the first, 1% of the second, 0.5% of the next two and 0.25% of the others.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HAS = re.compile(r'^\{"([^"]+)".*", (\d+), (\d+), \d+, \d+\},$', re.MULTILINE)
TABLE = {
    kind: (int(vcpus), int(gibibytes))
    for kind, vcpus, gibibytes in HAS.findall((ROOT / "app/machine/ec2_instances.inc").read_text())
}
LINES = [line for line in (ROOT / "kubernetes/instances.csv").read_text().splitlines() if not line.startswith("#")]
OFFERED = {row["type"]: row for row in csv.DictReader(LINES)}


def cpu_millis(vcpus: int) -> int:
    return round(vcpus * 1000 - (60 + 10 + 2 * 5 + (vcpus - 4) * 2.5))


def test_the_types_with_gpus_are_those_of_the_program() -> None:
    # The others have no GPU; Arm processors are not rendered for.
    assert set(TABLE) - {"p6e-gb200.36xlarge"} == {kind for kind in OFFERED if not re.match(r"[cm]\d", kind)}
    assert all(vcpus > 0 and gibibytes > 0 for vcpus, gibibytes in TABLE.values())


@pytest.mark.parametrize("kind", sorted(set(OFFERED) & set(TABLE)))
def test_what_is_offered_is_of_what_there_is(kind: str) -> None:
    vcpus, gibibytes = TABLE[kind]
    offered = OFFERED[kind]
    assert offered.keys() == {"type", "cpu_millis", "memory_mib", "efa_cards"}
    assert int(offered["cpu_millis"]) == cpu_millis(vcpus)
    for_pods = int(gibibytes * 1024 * 0.925) - 255 - 100 - int(offered["memory_mib"])
    pods, rest = divmod(for_pods, 11)
    assert rest <= 1 and 50 < pods < 2000, f"{for_pods} MiB are kept for pods"
