"""The ds_config.json files that are shipped work with DeepSpeed, too: its schedules know each of their keys."""

import inspect
import json
from pathlib import Path

import pytest

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("ds_config*.json"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_deepspeeds_schedule_knows_each_key(path):
    schedules = pytest.importorskip("deepspeed.runtime.lr_schedules")
    scheduler = json.loads(path.read_text()).get("scheduler")
    if scheduler is None:
        return
    known = inspect.signature(getattr(schedules, scheduler["type"])).parameters
    assert set(scheduler["params"]) <= set(known)
