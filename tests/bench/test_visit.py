"""bench/visit.py runs programs under limits; here they are scripts that stand for mpzero."""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path

import pytest
from visit import REPOSITORY, Settings, Visit

TRAINER = f"""#!{sys.executable}
import json, signal, sys, time

def stop(number, frame):
    print("saved", flush=True)
    time.sleep(60)

signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
flags = dict(word[2:].split("=", 1) for word in sys.argv[2:])
for step in range(1, int(flags["max_steps"]) + 1):
    time.sleep(0.05)
    line = {{"step": step, "loss": 1 / step, "tokens": 512 * step, "step_seconds": 0.05}}
    with open(flags["metrics_file"], "a") as metrics:
        metrics.write(json.dumps(line) + "\\n")
    if step == 2:
        print("Peak memory: planned 2 GiB, measured 2 GiB", flush=True)
print("saved", flush=True)
"""


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    trainer = tmp_path / "build" / "bin" / "mpzero"
    trainer.parent.mkdir(parents=True)
    trainer.write_text(TRAINER)
    trainer.chmod(0o755)
    data = tmp_path / "data.h5"
    made = Visit(Settings(tmp_path / "out", tmp_path / "build", data, data, tmp_path / "scratch"))
    made.gpus = 2
    return made


def test_a_run_that_ends_by_itself(visit: Visit) -> None:
    visit.train("short", ranks=1, steps=3, warm_up=1)
    result = visit.results["short"]
    assert result["status"] == 0
    assert len(result["losses"]) == 3
    assert result["step_ms"] == 50
    assert result["plan_off_percent"] == 0
    assert 0 < result["first_step_seconds"] <= result["seconds"]
    assert json.loads((visit.settings.output / "results.json").read_text()) == visit.results
    with tarfile.open(visit.settings.output / "logs.tar.gz") as archive:
        assert {"logs/short.log", "logs/short.jsonl"} <= set(archive.getnames())


def test_an_endless_run_is_ended_before_it_saves(visit: Visit) -> None:
    visit.train("endless", ranks=2, steps=4, warm_up=1, endless=True)
    result = visit.results["endless"]
    assert result["status"] == 0
    # It is not asked to end, which would make it save.
    assert 4 <= len(result["losses"]) < 1000
    assert "saved" not in (visit.logs / "endless.log").read_text()
    assert visit.finish() == []


def test_a_run_over_its_limit_is_ended_and_counts_as_failed(visit: Visit) -> None:
    visit.run("slow", ["sleep", "600"], limit=0.5)
    assert visit.results["slow"]["status"] == 124
    assert visit.finish() == ["slow"]


def test_a_test_that_was_skipped_neither_failed_nor_passed(visit: Visit, capsys) -> None:
    visit.run("skipped", [sys.executable, "-c", "raise SystemExit(77)"], limit=30)
    visit.run("failed", [sys.executable, "-c", "raise SystemExit(1)"], limit=30)
    assert visit.finish() == ["failed"]
    assert "runs with skipped cases: ['skipped']" in capsys.readouterr().out


def test_only_what_is_asked_for_and_what_the_machine_can_do(visit: Visit) -> None:
    visit.train("three_gpus", ranks=3, steps=1)
    visit.settings = Settings(**{**visit.settings.__dict__, "only": ("speed",)})
    visit.train("other", ranks=1, steps=1)
    assert set(visit.results) == {"machine"}


def test_the_configuration_of_a_run(visit: Visit) -> None:
    visit.train("moments", ranks=1, steps=1, stage=3, micro_batch=2, gas=4, bf16_moments=True, recompute="selective")
    config = json.loads((visit.settings.scratch / "moments" / "ds_config.json").read_text())
    assert config["bf16"] == {"enabled": True, "bf16_optimizer_states": True}
    assert config["zero_optimization"] == {"stage": 3}
    assert (config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]) == (2, 4)
    assert "--recompute=selective" in visit.results["moments"]["command"]


def test_random_tokens(visit: Visit) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(visit.random_tokens(1000)) as file:
        tokens = file["tokens"][:]
        assert (tokens.min(), tokens.max(), len(tokens)) == (0, 999, 1 << 23)
        assert list(file["document_offsets"]) == [0, len(tokens)]
        assert file.attrs["max_token_id"] == 999


def test_peers_run_only_where_they_are_named(visit: Visit) -> None:
    from gpu_run import named

    visit.settings = Settings(**{**visit.settings.__dict__, "only": ("speed", "peer_hugging_face")})
    assert named(visit, "peer_hugging_face")
    assert not named(visit, "peer_deepspeed_users_qwen3_zero2")


def test_runs_of_the_users_files_do_what_deepspeed_does(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    import gpu_run
    from deepspeed_peer import WORKS

    made = {}
    monkeypatch.setattr(visit, "train", lambda name, **options: made.setdefault(name, options))
    monkeypatch.setattr(visit, "run", lambda *_: None)
    visit.gpus = 4
    gpu_run.users_files(visit)

    def content(config: str | dict) -> dict:
        return json.loads((REPOSITORY / config).read_text()) if isinstance(config, str) else config

    with_peer = made.keys() & WORKS.keys()
    assert len(with_peer) == 8
    for name in with_peer:
        ours, theirs = made[name], WORKS[name]
        assert (ours.get("model_type", "qwen3_0_6b"), ours["seq_length"]) == (theirs.model, theirs.seq_length)
        own, peers = content(ours["users_config"]), content(theirs.config)
        if "superoffload" in name:
            assert own["zero_optimization"].pop("overlap_comm") is True
            peers = {**peers, "zero_optimization": {**peers["zero_optimization"]}}
            assert peers["zero_optimization"].pop("overlap_comm") is False
        assert own == peers
    changed = made["users_qwen3_zero2_ratio_auto"]["users_config"]["zero_optimization"]["offload_optimizer"]
    assert changed == {"device": "cpu", "pin_memory": True, "ratio": "auto"}
