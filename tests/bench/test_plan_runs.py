"""bench/plan_runs.py with scripts that stand for mpzero, and what it takes two hosts for."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import plan_runs
import pytest
from plan_against_measured import MEASURED, runs_of
from plan_rows import cpu_rows, row, rows
from plan_runs import CALIBRATIONS, Visit, collective_rates, main, on_two_hosts, shipped_file
from trainer import BUILD

ROOT = Path(__file__).resolve().parents[2]

MPZERO = f"""#!{sys.executable}
import json, os, sys

flags = dict(word[2:].split("=", 1) for word in sys.argv[2:] if "=" in word)
if "calibrate" in flags:
    if flags["calibrate_seconds"] == "13":
        print("mpzero: error: thirteen", file=sys.stderr)
        sys.exit(2)
    if os.environ.get("OMPI_COMM_WORLD_RANK", "0") == "0":
        with open(flags["calibrate"], "w") as file:
            json.dump({{"device": "a device", "source": "by hand", "error": 0.1, "matmuls": [{{}}]}}, file)
    sys.exit(0)
config = json.load(open(flags["deepspeed_config"]))
if sys.argv[1] == "plan":
    memory = "gpu_bytes" if "gpu" in flags else flags["device"] + " of " + flags["nproc_per_node"]
    name = {{"gpu_bytes": "gpu_bytes", "cpu of 2": "rank_bytes"}}[memory]
    seconds = 0.048 if "calibrations/h100" in flags.get("calibration", "") else 0.04
    memory = {{name: {{"total": 5 << 30, "context": 3 << 30}}}}
    step = {{"seconds": seconds, "clipped_seconds": None}}
    print(json.dumps({{"step": step, "memory": memory, "model": {{"parameters": 2e9}}}}))
    sys.exit(0)
if config["train_micro_batch_size_per_gpu"] == 7:
    print("mpzero: error: seven is too many", file=sys.stderr)
    sys.exit(2)
if os.environ["OMPI_COMM_WORLD_RANK"] == "0":
    print("hosts", os.environ.get("NCCL_HOSTID"), "of", os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
    with open(flags["metrics_file"], "w") as metrics:
        for step in range(1, int(flags["max_steps"]) + 1):
            peaks = {{"peak_allocated_bytes": 3 << 29, "peak_memory_bytes": 1 << 31}}
            line = {{"step": step, "step_seconds": 0.05 if step > 2 else 9.0, "exposed_communication_seconds": 0.01}}
            metrics.write(json.dumps(line | peaks) + "\\n")
    print("  CUDA and NCCL         0.61 GiB")
    print("Peak memory: planned 1.49 GiB, measured 1.50 GiB (allocated; reserved 2.00 GiB, fragmentation 25.0%)")
"""


@pytest.fixture
def build(tmp_path: Path) -> Path:
    program = tmp_path / "build" / "bin" / "mpzero"
    program.parent.mkdir(parents=True)
    program.write_text(MPZERO)
    program.chmod(0o755)
    return tmp_path / "build"


def visit_to(folder: Path, **options) -> Visit:
    args = {"build": Path("build"), "train_data": None, "budget": 100, "device": "cpu", "results": None, **options}
    return Visit(argparse.Namespace(folder=folder, **args), [])


def made(folder: Path, build: Path, known: list[dict], *more: str) -> tuple[int, dict]:
    words = [
        str(folder),
        f"--build={build}",
        f"--train_data={folder / 't.h5'}",
        "--device=cpu",
        *more,
    ]  # the last counts
    status = main(words, known)
    file = folder / "plan_runs.json"
    return status, {**json.loads(file.read_text()), "runs": runs_of(file)}


def test_a_row_has_what_the_plan_said_and_what_was_measured(tmp_path: Path, build: Path) -> None:
    status, found = made(tmp_path / "out", build, [row("one", steps=6, warm_up=2)])
    assert status == 0
    (run,) = found["runs"]
    assert (run["plan_ms"], run["step_ms"], run["plan_gib"], run["memory_gib"]) == (40, 50, 2, 1.5)
    config = json.loads((tmp_path / "out" / "one" / "ds_config.json").read_text())
    assert config["train_micro_batch_size_per_gpu"] == 4 and config["zero_optimization"] == {"stage": 2}
    with tarfile.open(tmp_path / "out" / "logs.tar.gz") as archive:
        assert set(archive.getnames()) == {"logs", "logs/one.log", "logs/one.jsonl"}


def on_an_h100(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_runs, "gpus_here", lambda: ["NVIDIA H100 80GB HBM3"])


def test_a_visit_calibrates_first_and_brings_back_a_few_files(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    on_an_h100(monkeypatch)
    known = [row("frozen_one", steps=6, warm_up=2)]
    results = tmp_path / "results"
    status, found = made(
        tmp_path / "out", build, known, "--device=cuda", "--calibrate=20", f"--results={results}", "--budget=100"
    )
    assert status == 0
    assert list(found["seconds"]) == ["calibrate", "frozen_h100_one"]
    (run,) = found["runs"]
    assert (run["name"], run["device"]) == ("frozen_h100_one", "NVIDIA H100 80GB HBM3")
    assert (run["plan_ms"], run["shipped_plan_ms"], run["step_ms"]) == (48, 40, 50)
    assert "billions" not in run and "limit" not in run
    assert {file.name for file in results.iterdir()} == {"plan_runs.json", "logs.tar.gz", "h100.json"}
    assert json.loads((results / "h100.json").read_text())["source"] == "by hand"
    shown = capsys.readouterr().out
    assert "before the runs: 1 of 1 within 10%" in shown
    assert "shipped at the time: 0 of 1 within 10%" in shown
    # What configs/calibrations has stays as it is, and lies beside the new file, which may need it for its names.
    copies = tmp_path / "out" / "calibrations"
    assert (copies / "h200.json").read_bytes() == (CALIBRATIONS / "h200.json").read_bytes()
    with tarfile.open(results / "logs.tar.gz") as archive:
        names = {"calibrate_h100.log", "frozen_h100_one.log", "frozen_h100_one.jsonl"}
        assert {name.removeprefix("logs/") for name in archive.getnames()} == {"logs", *names}


def test_without_a_calibration_of_its_own_a_visit_has_the_shipped_one(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_an_h100(monkeypatch)
    known = [row("frozen_one", steps=6, warm_up=2)]
    status, found = made(tmp_path / "out", build, known, "--device=cuda", "--calibrate=13", "--budget=100")
    assert status == 1
    assert "thirteen" in found["failed"]["calibrate"]
    (run,) = found["runs"]
    assert (run["plan_ms"], run["shipped_plan_ms"]) == (40, None)


def test_runs_on_a_gpu_that_the_plan_does_not_know_are_made_without_one(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_runs, "gpus_here", lambda: ["NVIDIA X1"])
    status, found = made(tmp_path / "out", build, [row("frozen_one", steps=6, warm_up=2)], "--device=cuda")
    assert status == 0
    (run,) = found["runs"]
    assert (run["name"], run["plan_ms"], run["step_ms"]) == ("frozen_nvidia_x1_one", None, 50)


def test_a_cpu_is_calibrated_by_one_rank_and_by_two(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_two(device: str, files: list[str]) -> list[dict]:
        return [row("cpu", device=device, ranks=2, calibration=files[1], steps=6, warm_up=2)]

    monkeypatch.setattr(plan_runs, "cpu_rows", of_two)
    status, found = made(tmp_path / "out", build, [], "--calibrate=20")
    assert status == 0
    assert list(found["seconds"]) == ["calibrate_1", "calibrate_2", "cpu"]
    (run,) = found["runs"]
    assert (run["device"], run["calibration"]) == ("a device", str(tmp_path / "out" / "calibrations" / "cpu_2.json"))


def test_a_dry_visit_plans_all_rows_and_makes_none(
    tmp_path: Path, build: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(tmp_path / "out"), f"--build={build}", "--dry=H100", "--calibrate=100"]
    known = [row("frozen_one", steps=25), row("frozen_two", gpus=2)]
    assert main([*words, "--budget=160"], known) == 0
    shown = capsys.readouterr().out
    # 1.2 x 100 + 20 s for the calibration, 4 + 1.5 x 2 + 25 x 0.04 s for the run.
    assert "frozen_h100_one: 40.0 ms, 2.0 GiB, about 8 s, 148 s until then" in shown
    assert "1 rows, 0 without a plan or too long; about 148 of 160 s" in shown
    assert not (tmp_path / "out" / "plan_runs.json").exists()
    assert main([*words, "--budget=140"], [row("frozen_one", steps=25)]) == 1
    assert main([*words, "--budget=900"], [row("frozen_one", steps=5000)]) == 1


def test_a_device_has_the_file_that_is_shipped_for_it() -> None:
    assert shipped_file("NVIDIA H100 80GB HBM3") == "h100.json"
    assert shipped_file("NVIDIA H200") == "h200.json"
    assert shipped_file("NVIDIA B300 SXM6 AC") == "nvidia_b300_sxm6_ac.json"


def test_a_row_on_a_cpu_is_planned_with_its_calibration_and_ranks(tmp_path: Path, build: Path) -> None:
    (run,) = [run for run in cpu_rows("A CPU", ["one.json", "two.json"]) if run["name"] == "cpu_tiny_fp32_2ranks_zero3"]
    assert (run["device"], run["calibration"], run["gpus"]) == ("A CPU", "two.json", 0)
    status, found = made(tmp_path / "out", build, [run | {"steps": 6, "warm_up": 2}])
    assert status == 0
    (run,) = found["runs"]
    assert (run["plan_ms"], run["plan_gib"], run["memory_gib"], run["ranks"]) == (40, 2, 1.5, 2)
    config = json.loads((tmp_path / "out" / run["name"] / "ds_config.json").read_text())
    assert config["bf16"] == {"enabled": False} and config["zero_optimization"] == {"stage": 3}


def test_rows_of_cpus_are_of_both_types_and_all_stages() -> None:
    known = cpu_rows("A CPU", ["one.json", "two.json"])
    assert len({run["name"] for run in known}) == len(known) == 16
    assert {(run["dtype"], run["ranks"]) for run in known} == {("bf16", 1), ("bf16", 2), ("fp32", 1), ("fp32", 2)}
    assert {run["zero_stage"] for run in known if run["ranks"] == 2} == {1, 2, 3}
    assert all(run["warm_up"] + 20 <= run["steps"] for run in known)


def test_a_row_that_fails_is_named_and_the_others_go_on(tmp_path: Path, build: Path) -> None:
    known = [row("seven", micro_batch=7), row("other", steps=5, warm_up=1)]
    status, found = made(tmp_path / "out", build, known)
    assert status == 1
    assert [run["name"] for run in found["runs"]] == ["other"]
    assert "seven is too many" in found["failed"]["seven"]


def test_what_the_budget_has_no_time_for_is_left_out(tmp_path: Path, build: Path) -> None:
    status, found = made(tmp_path / "out", build, [row("late")], "--budget=0")
    assert (status, found["runs"], found["left_out"]) == (0, [], ["late"])


def test_rows_of_two_hosts_are_left_out_without_the_rate_between_them(
    tmp_path: Path, build: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan_runs, "doctor", lambda _: {"status": 139, "rates": {}})
    monkeypatch.setattr(plan_runs, "streams", lambda _: {})
    hosts = {"nodes": 2, "ranks": 2}
    _, found = made(tmp_path / "out", build, [row("hosts", **hosts), row("one", steps=6, warm_up=2)])
    assert found["left_out"] == ["hosts"]
    assert [run["name"] for run in found["runs"]] == ["one"]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
def test_two_hosts_are_two_for_mpi_and_nccl(tmp_path: Path) -> None:
    own = f'$(ls "{tmp_path}/mpi/$NCCL_HOSTID" | cut -d. -f1)'  # Open MPI's folder of a daemon: ompi.HOST.USER
    shown = f'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_LOCAL_SIZE: $NCCL_HOSTID $CUDA_VISIBLE_DEVICES {own}"'
    command = on_two_hosts(tmp_path, ["sh", "-c", shown], gpus=True)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert sorted(done.stdout.splitlines()) == ["0 of 1: host0 0 ompi", "1 of 1: host1 1 ompi"], done.stderr


def test_streams_of_the_interface_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=lo")
    monkeypatch.setattr(plan_runs, "STREAMS", [1])
    found = plan_runs.streams(visit_to(tmp_path, stream_seconds=0.2))
    assert found["interface"] == "lo" and found["sent"]["1"] > 0
    # The beginning of a name, as to NCCL.
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "l")
    assert plan_runs.interface_to_others() == "lo"
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=l")
    with pytest.raises(ValueError, match=r"NCCL_SOCKET_IFNAME==l is not one of .*lo"):
        plan_runs.interface_to_others()
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "^docker,lo")
    assert plan_runs.interface_to_others() != "docker"


@pytest.mark.parametrize(("budget", "limit"), [(100, 1), (0, 600)])
def test_a_program_is_ended_with_its_limit_and_with_the_budget(tmp_path: Path, budget: float, limit: float) -> None:
    visit = visit_to(tmp_path, budget=budget)
    assert visit.run("slow", ["sleep", "600"], limit)["status"] == 124 and visit.log("slow") == ""


@pytest.mark.parametrize(
    ("check", "rates"), [("bandwidth_between", {"all-gather": {"512": 9.0}}), ("bandwidth_inside", {})]
)
def test_only_the_rate_between_the_hosts_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str, rates: dict
) -> None:
    """Within one host NCCL has other channels."""
    visit = visit_to(tmp_path)

    def run(name: str, command: list[str], limit: float) -> dict:
        assert f"--json={tmp_path / 'doctor.json'}" in command and "NCCL_HOSTID=host1" in command
        findings = [{"check": "network", "message": "TCP"}, {"check": check, "message": "all-gather 512 MiB 9.00 GB/s"}]
        (tmp_path / "doctor.json").write_text(json.dumps({"hosts": [{"findings": findings}]}))
        return {"status": 0}

    monkeypatch.setattr(visit, "run", run)
    assert plan_runs.doctor(visit)["rates"] == rates


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="no mpirun")
def test_what_the_doctor_writes_of_two_hosts_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own report, of MPI on the CPU; the sizes are smaller there."""
    flags = ["--device=cpu", f"--checkpoint_dir={tmp_path}"]
    monkeypatch.setattr(
        plan_runs,
        "on_two_hosts",
        lambda folder, words, gpus: on_two_hosts(folder, [*words[:-1], *flags], gpus),
    )
    found = plan_runs.doctor(visit_to(tmp_path, build=BUILD))
    assert found["status"] == 0 and found["rates"]["all-gather"]["1"] > 0, found


def test_rates_of_the_doctor() -> None:
    # As judge_bandwidth in app/doctor/bandwidth.cpp writes it.
    seen = "all-gather 1 MiB 0.51 GB/s, 64 MiB 6.20 GB/s; reduce-scatter 1 MiB 0.40 GB/s, 64 MiB 5.10 GB/s"
    assert collective_rates(json.dumps({"seen": seen})) == {
        "all-gather": {"1": 0.51, "64": 6.2},
        "reduce-scatter": {"1": 0.4, "64": 5.1},
    }


def test_the_plan_is_told_the_rate_of_the_slower_collective(tmp_path: Path) -> None:
    visit = visit_to(tmp_path)
    assert visit.network_rate() is None
    visit.results["doctor"] = {
        "rates": {"all-gather": {"1": 0.5, "512": 9.0}, "reduce-scatter": {"1": 9.9, "512": 8.5}}
    }
    assert visit.network_rate() == 8.5


def test_rows_are_of_many_kinds_and_each_has_a_name_of_its_own() -> None:
    known = rows()
    names = {run["name"] for run in known}
    assert len(names) == len(known) >= 12
    older = json.loads(MEASURED.read_text())["visits"][0]["runs"]
    assert not names & {run["name"] for run in older}
    assert {run["zero_stage"] for run in known} == {0, 1, 2, 3}
    assert {(run["nodes"], run["layout"]) for run in known} == {(1, "one_level"), (2, "one_level"), (2, "two_levels")}
    assert all(run["warm_up"] + 5 <= run["steps"] for run in known)
    on_one = [run for run in known if run["gpus"] == 1]
    assert len(on_one) >= 10 and {run["zero_stage"] for run in on_one} == {0, 1, 2, 3}
    assert {run["fp8"] for run in on_one} == {"none", "tensorwise", "rowwise"}
    assert {run["model"] for run in on_one} >= {"qwen2_5_0_5b", "qwen3_0_6b", "llama_3_8b", "qwen2_5_7b"}
    assert {run["recompute"] for run in on_one} == {"none", "selective", "full", "auto"}
    assert {(run["offload_optimizer"], run["offload_param"]) for run in on_one} == {
        (False, False),
        (True, False),
        (True, True),
    }
