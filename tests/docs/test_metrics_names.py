"""The page about Prometheus names the metrics that the program exports, and no others."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from documents import ROOT, section, text_of

sys.path.pop(0)

SOURCES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "app/exporter").glob("*.cpp"))


def test_the_page_has_each_metric_of_the_program() -> None:
    exported = {name for source in SOURCES for name in re.findall(r'"(mpzero_\w+)"', (ROOT / source).read_text())}
    exported -= {"mpzero_rdma_"}
    assert len(exported) > 40
    named = set(re.findall(r"`(mpzero_\w+)", section(text_of("docs/watching.md"), "Prometheus"))) - {"mpzero_rdma_"}
    assert named == exported


def test_counters_and_units_are_named_as_prometheus_wants() -> None:
    for source in SOURCES:
        text = (ROOT / source).read_text()
        assert all(name.endswith("_total") for name in re.findall(r'counter\(\s*"(mpzero_\w+)"', text))
        assert not any(name.endswith("_total") for name in re.findall(r'(?:gauge|histogram)\(\s*"(mpzero_\w+)"', text))
