"""docs/formats.md names every field that the writers of the files write."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from documents import ROOT, in_backticks, section, text_of

VISIT = r'\.(?:number|integer|boolean|texts?|texts_by_name|one_of|choice|type|section|list)\("(\w+)"'
PAIR = r'\{"(\w+)",'
ATTRIBUTE = r'set_attribute\("(\w+)"'
# A section of the page, a file that writes, what its fields look like there, and the least number of them.
WRITERS = [
    ("metrics.jsonl", "app/log/metrics_log.cpp", r'kRunKey = "(\w+)"', 1),
    ("metrics.jsonl", "app/log/step_log.cpp", PAIR, 16),
    ("metrics.jsonl", "app/log/step_log.cpp", r'step\["(\w+)"\]', 8),
    ("failures", "app/watchdog/evidence.cpp", PAIR, 35),
    ("failure.json", "app/run_failure/merging.py", r'(?m:^        "(\w+)": )', 10),
    ("Checkpoint", "io/checkpoint/manifest.cpp", PAIR, 15),
    ("Checkpoint", "io/checkpoint/manifest.cpp", r'(?:entry|content)(?:\["run"\])?\["(\w+)"\] =', 3),
    ("Checkpoint", "io/checkpoint/shard_files.cpp", ATTRIBUTE, 14),
    ("Checkpoint", "io/deepspeed/descriptions.cpp", r'(?:\{|emplace_back\()"(\w+)",', 45),
    ("Token file", "app/prepare/token_file.py", r'_create\("(\w+)"', 3),
    ("Token file", "app/prepare/token_file.py", r'attrs\["(\w+)"\]|"(format_version|max_token_id|arguments)":', 4),
    ("Token file", "app/prepare/encoders.py", r'(?m:^            "(\w+)": )', 7),
    ("Token file", "app/prepare_data.py", r'"(source|special_tokens_in_text)":', 2),
    ("Token file", "app/prepare/finetuning.py", r'(?m:^            "(\w+)": )', 7),
    ("events.jsonl", "app/log/run_events.cpp", PAIR, 12),
    ("events.jsonl", "app/train/start_facts.cpp", r'(?m:^\s+(?:return \{)?\{"(\w+)",)', 14),
    ("events.jsonl", "app/log/json_lines.cpp", PAIR, 2),
    ("events.jsonl", "app/train/metrics_endpoint.cpp", r'"(metrics_\w+)", \w+_\}', 2),
    (
        "node.jsonl",
        "app/exporter/node_recorder.cpp",
        r'facts\["(\w+)"\]|"(\w+_(?:ratio|hertz|watts|celsius|bytes))"',
        8,
    ),
    ("summary.json", "app/log/run_totals.cpp", PAIR, 10),
    ("Plan", "app/plan/command/plan_report.cpp", PAIR, 50),
    ("Calibration", "app/plan/calibration_file.cpp", VISIT, 40),
]
# Parts of torch's optimizer state and of DeepSpeed's helper objects, which the page names by the field that holds them.
INNER = {
    *(
        "state",
        "step",
        "exp_avg",
        "exp_avg_sq",
        "param_groups",
        "lr",
        "betas",
        "eps",
        "weight_decay",
        "bias_correction",
    ),
    *("amsgrad", "params", "cur_scale", "dynamic", "numel", "start", "last_batch_iteration"),
}


@pytest.mark.parametrize(("title", "source", "pattern", "least"), WRITERS)
def test_every_field_is_documented(title: str, source: str, pattern: str, least: int) -> None:
    documented = {
        part for word in in_backticks(section(text_of("docs/formats.md"), title)) for part in re.findall(r"\w+", word)
    }
    found = re.findall(pattern, (ROOT / source).read_text())
    fields = {name for match in found for name in ([match] if isinstance(match, str) else match) if name}
    assert len(fields) >= least, f"{source} is written in another way: adapt the pattern"
    assert sorted(fields - documented - INNER) == []
