#!/usr/bin/env python3
"""Performs short runs of many configurations on this machine's GPUs or CPU, and compares them with `mpzero plan`.

    bench/plan_runs.py FOLDER [--calibrate 110] [--results RESULTS] [--train_data T.h5] [--budget 240] [--only WORD ...]
    bench/plan_runs.py FOLDER --device cpu --calibrate 20    # on the CPU
    bench/plan_runs.py FOLDER --dry H100 [--gpus 2]          # only the plans, without a GPU

--calibrate SECONDS first calibrates the device (`mpzero plan --calibrate`) and writes the result to a copy of
configs/calibrations, replacing the file of the same device. All runs are predicted before the first run starts, and the
predictions are stored with the measurements. plan_ms uses the new calibration, and shipped_plan_ms uses
configs/calibrations. `mpzero doctor` measures the network rate for the plan.

Writes to FOLDER: plan_runs.json, a session in the format of bench/plan_measured.json; calibrations/; results.json and
logs.tar.gz (bench/visit.py). Use `bench/plan_against_measured.py --runs FOLDER/plan_runs.json` to create the table for
bench/PLAN.md. With --results, plan_runs.json, logs.tar.gz and the new calibration are also copied to RESULTS. All files
are rewritten after each run, so an interrupted session keeps its results.

Without --train_data, the runs use random tokens, which requires h5py. Runs that need more GPUs than available are
skipped. Runs that do not fit into the time budget are listed in `left_out`. For runs on two hosts, two mpirun daemons
with different host names and NCCL_HOSTID emulate two hosts for MPI, mpzero and NCCL. TCP streams and `mpzero doctor
--bandwidth` are measured first; if mpzero doctor does not report a rate, these runs are skipped.

--dry prints the plan of each run and the estimated duration of the session. Exits with status 1 if a run cannot be
predicted or does not fit into memory, or if the session exceeds the budget.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import sys
import time
from pathlib import Path

import network_experiment
import tcp_streams
import visit as visits
from measures import REPOSITORY, medians, planned_memory, read_metrics, read_model
from plan_against_measured import (
    CALIBRATIONS,
    DEFAULTS,
    GPUS,
    ds_config,
    memory_of_rank,
    plan,
    said_before,
    shipped_file,
    step_seconds,
)
from plan_rows import cpu_rows, rows
from visit import gpus_here

HOSTS = ("host0", "host1")
STREAMS = [1, 4, 16, 32]
# Minimum remaining time to start a part. No part runs longer than the budget.
LEAST_SECONDS = 12
# Time to measure TCP streams and run mpzero doctor before runs on two hosts.
NETWORK_SECONDS = 60.0
# Startup time of a run for --dry: constant, per billion parameters, and per billion parameters with states allocated on
# the host. On an H200, runs of 0.6 and 3.6 billion parameters took 4.7 and 9.3 s. The last number is a guess.
START_SECONDS, START_OF_BILLION, START_OF_BILLION_ON_HOST = 4.0, 1.5, 6.0


class Visit(visits.Visit):
    """A session with a time budget that also writes plan_runs.json."""

    def __init__(self, args: argparse.Namespace, gpus: list[str]):
        self.folder = args.folder.resolve()
        super().__init__(
            visits.Settings(self.folder, args.build, args.train_data, None, scratch=self.folder / "scratch")
        )
        self.args = args
        self.end = time.monotonic() + args.budget
        self.results["machine"]["gpus"] = gpus
        self.left_out: list[str] = []
        self.seconds: dict[str, float] = {}
        self.runs: list[dict] = []
        self.calibration: Path | None = None  # GPU calibration made in this session

    def left(self) -> float:
        return self.end - time.monotonic()

    def part(self, name: str, work) -> None:
        """Runs a part and records the result or the error."""
        if self.left() < LEAST_SECONDS:
            self.left_out.append(name)
        else:
            start = time.monotonic()
            try:
                self.results[name] = work()
            except Exception as error:
                self.results[name] = {"error": f"{type(error).__name__}: {error}"}
            self.seconds[name] = round(time.monotonic() - start, 1)
            print(f"{name}: {json.dumps(self.results[name])}", flush=True)
        self.write()

    def run(self, name: str, command: list[str], limit: float, **options) -> dict:
        """Runs a command for at most `limit` seconds, within the budget."""
        return super().run(name, command, max(1.0, min(limit, self.left())), **options)

    def log(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text(errors="replace", encoding="utf-8")

    def write(self) -> None:
        super().write()
        machine = self.results["machine"]
        machine = machine | {name: self.results[name] for name in ("streams", "doctor") if name in self.results}
        found = {"machine": machine, "left_out": self.left_out, "failed": self.failed(), "seconds": self.seconds}
        kept = {"name", "step_ms", "calibration", *DEFAULTS}
        runs = [
            {name: run[name] for name in run if name in kept and (name not in DEFAULTS or run[name] != DEFAULTS[name])}
            for run in self.runs
        ]
        lines = ",\n".join(json.dumps(run) for run in runs)
        text = json.dumps(found)[:-1] + f',\n"runs": [\n{lines}\n]}}\n'
        (self.folder / "plan_runs.json").write_text(text, encoding="utf-8")
        if self.args.results is None:
            return
        self.args.results.mkdir(parents=True, exist_ok=True)
        files = [self.folder / name for name in ("plan_runs.json", "logs.tar.gz")]
        for file in [*files, *([self.calibration] if self.calibration else [])]:
            shutil.copy(file, self.args.results)

    def failed(self) -> dict[str, str]:
        return {name: part["error"] for name, part in self.results.items() if "error" in part}

    def network_rate(self) -> float | None:
        """Returns the GB/s of the slower collective at the largest size, or None if not measured."""
        kinds = self.results.get("doctor", {}).get("rates", {})
        return min(rates[max(rates, key=float)] for rates in kinds.values()) if kinds else None


def measured_times(visit: Visit, name: str, launch: list[str]) -> tuple[Path, dict]:
    """Calibrates this machine. Returns the file and a summary."""
    folder = visit.folder / "calibrations"
    if not folder.exists():
        shutil.copytree(CALIBRATIONS, folder)
    seconds = visit.args.calibrate
    words = [str(visit.args.build.resolve() / "bin" / "mpzero"), "plan", f"--calibrate={folder / name}"]
    words += [f"--device={visit.args.device}", f"--calibrate_seconds={seconds:g}"]
    # Calibration of entire layers takes 20% longer. 60 s: startup and the last operation.
    label = f"calibrate_{Path(name).stem}"
    status = visit.run(label, [*launch, *words], 1.2 * seconds + 60)["status"]
    found = json.loads((folder / name).read_text(encoding="utf-8")) if (folder / name).exists() else {}
    if status != 0 or "scales" in found:
        raise RuntimeError(f"exit status {status}: {network_experiment.sentence_of(visit.log(label))}")
    figures = {"file": name, "source": found["source"], "relative_error": found["error"]}
    return folder / name, figures | {"products": len(found["matmuls"]), "in_fp8": len(found.get("fp8_matmuls", []))}


def calibrate_gpu(visit: Visit) -> dict:
    path, figures = measured_times(visit, shipped_file(visit.results["machine"]["gpus"][0]), [])
    visit.calibration = path
    return figures


def calibrate_cpu(visit: Visit, ranks: int) -> dict:
    """Calibrates the CPU for one rank with all cores, or for several ranks that share the cores."""
    launch = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks)] if ranks > 1 else []
    path, figures = measured_times(visit, f"cpu_{ranks}.json", launch)
    return figures | {"path": str(path), "device": json.loads(path.read_text(encoding="utf-8"))["device"]}


def interface_to_others() -> str:
    """Returns the network interface: NCCL_SOCKET_IFNAME if set, otherwise that of the default route."""
    names = sorted(path.name for path in Path("/sys/class/net").iterdir())
    named = os.environ.get("NCCL_SOCKET_IFNAME", "")
    if re.fullmatch(r"=?[a-z][\w.-]*", named):
        # NCCL treats the value as a prefix unless it begins with "=".
        found = [name for name in names if (name == named[1:] if named[0] == "=" else name.startswith(named))]
        if not found:
            raise ValueError(f"NCCL_SOCKET_IFNAME={named} is not one of {', '.join(names)}")
        return found[0]
    for line in Path("/proc/net/route").read_text(encoding="utf-8").splitlines()[1:]:
        interface, destination = line.split()[:2]
        if destination == "00000000":
            return interface
    others = [name for name in names if name != "lo"]
    return others[0] if others else "lo"


def streams(visit: Visit) -> dict:
    interface = interface_to_others()
    found = tcp_streams.local(interface, STREAMS, visit.args.stream_seconds)
    return {"interface": interface, **found}


def on_two_hosts(folder: Path, words: list[str], gpus: bool) -> list[str]:
    """Returns the launch command for two emulated hosts: mpirun daemons with separate host names on this machine."""
    agent = folder / "agent.sh"
    # Each daemon needs its own folder: concurrent writes of the machine's topology to one file crash a daemon.
    base = shlex.quote(str(folder / "mpi"))
    agent.write_text(
        "#!/bin/sh\n# Replaces ssh HOST COMMAND; uses a separate Open MPI folder per host.\n"
        f'export OMPI_MCA_orte_tmpdir_base={base}/"$1"\nmkdir -p "$OMPI_MCA_orte_tmpdir_base"\n'
        'shift\nexec sh -c "$*"\n',
        encoding="utf-8",
    )
    agent.chmod(0o755)
    settings = {"plm": "rsh", "plm_rsh_agent": str(agent), "btl_tcp_if_include": interface_to_others()}
    command = ["mpirun", "--bind-to", "none", *(word for key, v in settings.items() for word in ("--mca", key, v))]
    for rank, host in enumerate(HOSTS):
        own = [f"CUDA_VISIBLE_DEVICES={rank}"] if gpus else []
        command += [":"] if rank else []
        command += ["-n", "1", "--host", f"{host}:1", "env", f"NCCL_HOSTID={host}", *own, *words]
    return command


def doctor(visit: Visit) -> dict:
    """Measures the GB/s that a host sends in collectives, by size, on an idle network."""
    file = visit.folder / "doctor.json"
    file.unlink(missing_ok=True)
    words = [str(visit.args.build.resolve() / "bin" / "mpzero"), "doctor", "--bandwidth", f"--json={file}"]
    command = on_two_hosts(visit.folder, [*words, "--network=socket"], visit.args.device == "cuda")
    status = visit.run("doctor", command, 40)["status"]
    hosts = json.loads(file.read_text(encoding="utf-8"))["hosts"] if file.exists() else []
    messages = {each["check"]: each["message"] for host in hosts for each in host["findings"]}
    rates = collective_rates(messages.get("bandwidth_between", ""))
    output = json.dumps(messages) if messages else visit.log("doctor")[-2000:]
    return {"status": status, "rates": rates, **({} if rates else {"output": output})}


def collective_rates(text: str) -> dict[str, dict[str, float]]:
    """Parses "all-gather 1 MiB 0.51 GB/s, 64 MiB 6.20 GB/s; reduce-scatter …" into rates by kind and size in MiB."""
    found: dict[str, dict[str, float]] = {}
    for kind, list_of_rates in re.findall(r"(all-gather|reduce-scatter)((?: [\d.]+ MiB [\d.]+ GB/s,?)+)", text):
        rates = re.findall(r"([\d.]+) MiB ([\d.]+) GB/s", list_of_rates)
        found[kind] = {size: float(rate) for size, rate in rates}
    return found


def command_of(visit: Visit, run: dict, folder: Path) -> list[str]:
    config = folder / "ds_config.json"
    config.write_text(json.dumps(ds_config(run), indent=1), encoding="utf-8")
    vocabulary = run["vocab_size"] or read_model(run["model"])["vocab_size"]
    flags = {
        "model_type": run["model"],
        **run["model_flags"],
        "deepspeed_config": config,
        "train_data": visit.args.train_data or visit.random_tokens(vocabulary),
        "seq_length": run["length"],
        "recompute": run["recompute"],
        "max_steps": run["steps"],
        "checkpoint_freq": 0,
        "save_final": "false",
        "validation_freq": 0,
        "checkpoint_dir": folder / "checkpoints",
        "metrics_file": folder / "metrics.jsonl",
        "device": visit.args.device,
    }
    if run["vocab_size"]:
        flags["vocab_size"] = run["vocab_size"]
    words = [str(visit.args.build.resolve() / "bin" / "mpzero"), "train", "--overwrite"]
    words += [f"--{flag}={value}" for flag, value in flags.items()]
    if run["nodes"] > 1:
        return on_two_hosts(visit.folder, [*words, "--network=socket"], visit.args.device == "cuda")
    return network_experiment.command_of(
        f"mpirun --oversubscribe --bind-to none -n {run['ranks'] or max(1, run['gpus'])}", words
    )


def measure(visit: Visit, run: dict) -> dict:
    """Performs a run, adds the results to `run`, and returns a summary."""
    folder = visit.folder / run["name"]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    status = visit.run(run["name"], command_of(visit, run, folder), run["limit"])["status"]
    metrics = folder / "metrics.jsonl"
    lines = read_metrics(metrics) if metrics.exists() else []
    if lines:
        shutil.copy(metrics, visit.logs / f"{run['name']}.jsonl")
    text = visit.log(run["name"])
    found = medians(lines, warm_up=run["warm_up"])
    if not found:
        raise RuntimeError(f"exit status {status}, {len(lines)} steps: {network_experiment.sentence_of(text)}")
    run |= {"step_ms": found["step_ms"], "memory_gib": most_gib(lines, "peak_allocated_bytes")}
    visit.runs.append(run)
    shown = {name: run.get(name) for name in ("plan_ms", "plan_gib", "step_ms", "memory_gib")}
    return shown | {"reserved_gib": most_gib(lines, "peak_memory_bytes"), **planned_memory(text)}


def most_gib(lines: list[dict], name: str) -> float | None:
    values = [line[name] for line in lines if name in line]
    return round(max(values) / 2**30, 5) if values else None


def planned(visit: Visit, run: dict) -> bool:
    """Records the plan of a run. Returns False if the run cannot be predicted or does not fit."""
    program = visit.args.build.resolve() / "bin" / "mpzero"
    run |= {"plan_ms": None, "plan_gib": None, "shipped_plan_ms": None}
    try:
        found = plan(run, program, str(visit.calibration) if visit.calibration else None)
        shipped = plan(run, program, None) if visit.calibration else None
    except SystemExit as error:
        print(f"{run['name']}: no plan: {error}", flush=True)
        return False
    gpu = memory_of_rank(found)
    run["plan_ms"] = milliseconds(found)
    run["shipped_plan_ms"] = milliseconds(shipped)
    run["plan_gib"] = round((gpu["total"] - gpu["context"]) / 2**30, 5)
    run["billions"] = found.get("model", {}).get("parameters", 0) / 1e9
    return run["plan_ms"] is not None


def milliseconds(found: dict | None) -> float | None:
    return round(step_seconds(found) * 1e3, 2) if found and found["step"] else None


def expected_seconds(run: dict) -> float:
    """Returns the expected duration of a run according to its plan."""
    start = START_OF_BILLION_ON_HOST if run["offload_optimizer"] else START_OF_BILLION
    return START_SECONDS + start * run["billions"] + run["steps"] * run["plan_ms"] / 1e3


def dry_run(visit: Visit, wanted: list[dict]) -> int:
    """Prints all plans and the session's duration. Returns 1 if a plan is missing or the budget is too short."""
    without = 0
    seconds = 1.2 * visit.args.calibrate + 20 if visit.args.calibrate else 0.0
    seconds += NETWORK_SECONDS if any(run["nodes"] > 1 for run in wanted) else 0
    for run in wanted:
        # Assumed network rate.
        run["network_rate"] = 5.0 if run["nodes"] > 1 else None
        if not planned(visit, run):
            without += 1
            continue
        seconds += expected_seconds(run)
        late = "" if run["limit"] >= expected_seconds(run) else f"; exceeds the limit of {run['limit']} s"
        without += bool(late)
        print(
            f"{run['name']}: {run['plan_ms']:,.1f} ms, {run['plan_gib']:.1f} GiB, about "
            f"{expected_seconds(run):.0f} s, {seconds:.0f} s until then{late}",
            flush=True,
        )
    print(f"{len(wanted)} rows, {without} without a plan or too long; about {seconds:.0f} of {visit.args.budget:.0f} s")
    return 1 if without or seconds > visit.args.budget else 0


def name_after(run: dict, gpus: list[str]) -> None:
    """Renames runs whose GPU type differs from that of the first session."""
    if not gpus:
        return
    run["device"] = gpus[0]
    if GPUS.get(gpus[0]) != "H200":
        short = GPUS.get(gpus[0], gpus[0]).lower().replace(" ", "_")
        run["name"] = run["name"].replace("frozen_", f"frozen_{short}_")


def calibrate(visit: Visit) -> None:
    """Calibrates the GPU, or the CPU with one rank and with two ranks."""
    if visit.args.device == "cuda":
        visit.part("calibrate", lambda: calibrate_gpu(visit))
        return
    for ranks in (1, 2):
        visit.part(f"calibrate_{ranks}", lambda ranks=ranks: calibrate_cpu(visit, ranks))
    found = [visit.results[f"calibrate_{ranks}"] for ranks in (1, 2)]
    visit.args.calibrations = [one["path"] for one in found if "path" in one]
    if len(visit.args.calibrations) < len(found):
        raise SystemExit("CPU calibration failed; mpzero plan requires a calibration")


def main(arguments: list[str], known: list[dict] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--build", type=Path, default=REPOSITORY / "build")
    parser.add_argument("--train_data", type=Path, help="token file; default: random tokens")
    parser.add_argument("--budget", type=float, default=240, help="time budget of the session, in seconds")
    parser.add_argument("--stream_seconds", type=float, default=0.6)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--calibrations", nargs=2, help="CPU calibrations for one rank and for two ranks")
    parser.add_argument("--calibrate", type=float, default=0, metavar="SECONDS", help="calibrate the device first")
    parser.add_argument("--results", type=Path, help="folder for copies of the results")
    parser.add_argument("--dry", choices=sorted(GPUS.values()), metavar="GPU", help="only predict, for this GPU")
    parser.add_argument("--gpus", type=int, default=1, help="number of GPUs for --dry")
    parser.add_argument(
        "--only", nargs="*", default=[], help="perform only runs whose names contain one of these words"
    )
    args = parser.parse_args(arguments)
    words = args.only
    gpus = gpus_here() if args.device == "cuda" else []
    if args.dry:
        gpus = [name for name, short in GPUS.items() if short == args.dry] * args.gpus
    visit = Visit(args, gpus)
    if args.calibrate and not args.dry:
        calibrate(visit)
    if args.calibrations:
        name = json.loads(Path(args.calibrations[0]).read_text(encoding="utf-8"))["device"]
        known = cpu_rows(name, [str(Path(file).resolve()) for file in args.calibrations])
    wanted = [run for run in known or rows() if not words or any(word in run["name"] for word in words)]
    wanted = [run for run in wanted if args.device == "cpu" or run["gpus"] <= len(gpus)]
    for run in wanted:
        name_after(run, gpus)
    if args.dry:
        return dry_run(visit, wanted)
    if any(run["nodes"] > 1 for run in wanted):
        visit.part("streams", lambda: streams(visit))
        visit.part("doctor", lambda: doctor(visit))
    if visit.network_rate() is None:
        # Use the measured rate, not the rate of another run.
        visit.left_out += [run["name"] for run in wanted if run["nodes"] > 1]
        wanted = [run for run in wanted if run["nodes"] == 1]
    for run in wanted:
        run["network_rate"] = visit.network_rate() if run["nodes"] > 1 else None
        planned(visit, run)
    for run in wanted:
        visit.part(run["name"], lambda run=run: measure(visit, run))
    visit.write()
    print(said_before(visit.runs) or "no run had a plan")
    print(f"left out: {visit.left_out or 'nothing'}; failed: {list(visit.failed()) or 'none'}")
    print(f"{args.budget - visit.left():.0f} s in total; {visit.folder / 'plan_runs.json'}")
    return 1 if visit.failed() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
