"""bench/two_hosts.py as far as it goes without GPUs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
import two_hosts


def visit_to(folder: Path, **options) -> two_hosts.Visit:
    return two_hosts.Visit(argparse.Namespace(folder=folder, build=Path("build"), budget=100, only=[], **options))


def test_what_the_budget_has_no_time_for_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert two_hosts.main([str(tmp_path), "--train_data", "t.h5", "--budget", "0"]) == 0
    found = json.loads((tmp_path / "two_hosts.json").read_text())
    assert found["left_out"] == [
        *["streams", "doctor", "mpzero_zero2_two_levels", "mpzero_zero3_two_levels", "mpzero_zero2_nvlink"],
        *["mpzero_zero3_nvlink", "deepspeed_zero2", "deepspeed_zero3"],
    ]
    assert "0 s in all" in capsys.readouterr().out


def test_a_part_that_fails_is_its_error_and_the_others_go_on(tmp_path: Path) -> None:
    visit = visit_to(tmp_path)
    visit.part("one", lambda: 1 / 0)
    visit.part("two", lambda: {"fine": True})
    found = json.loads((tmp_path / "two_hosts.json").read_text())
    assert found["one"] == {"error": "ZeroDivisionError: division by zero"}
    assert found["two"] == {"fine": True} and set(found["seconds"]) == {"one", "two"}


def test_nccl_is_compared_with_streams_that_both_sides_send(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    visit = visit_to(tmp_path)
    visit.results["streams"] = {"both_ways": {"1": 4.0, "8": 20.0, "32": 16.0}}
    # As judge_bandwidth in app/doctor/bandwidth.cpp writes it.
    seen = (
        "all-gather 1 MiB 0.51 GB/s, 64 MiB 6.20 GB/s, 512 MiB 9.00 GB/s; "
        "reduce-scatter 1 MiB 0.40 GB/s, 64 MiB 5.10 GB/s, 512 MiB 8.50 GB/s"
    )

    def run(name: str, command: list[str], limit: float) -> tuple[int, Path]:
        assert f"--json={tmp_path / 'doctor.json'}" in command and "NCCL_HOSTID=host1" in command
        (tmp_path / "doctor.json").write_text(json.dumps({"findings": [{"check": "bandwidth", "seen": seen}]}))
        return 0, tmp_path / "doctor.log"

    monkeypatch.setattr(visit, "run", run)
    found = two_hosts.doctor(visit)
    assert found["rates_512_mib"] == {"all-gather": 9.0, "reduce-scatter": 8.5}
    assert found["plain_streams_each_way"] == 10.0
    assert found["share_of_plain_streams"] == {"all-gather": 0.9, "reduce-scatter": 0.85}


def test_streams_of_the_interface_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=lo")
    monkeypatch.setattr(two_hosts, "STREAMS", [1])
    found = two_hosts.streams(visit_to(tmp_path, stream_seconds=0.2))
    assert found["interface"] == "lo" and found["sent"]["1"] > 0
    # The beginning of a name, as to NCCL.
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "l")
    assert two_hosts.interface_to_others() == "lo"
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "=l")
    with pytest.raises(ValueError, match=r"NCCL_SOCKET_IFNAME==l is none of .*lo"):
        two_hosts.interface_to_others()
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "^docker,lo")
    assert two_hosts.interface_to_others() != "docker"


def test_deepspeed_is_found_where_it_was_carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTHONPATH", "DS_BUILD_OPS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PATH", two_hosts.os.environ["PATH"])
    packages = tmp_path / "packages"
    (packages / "deepspeed").mkdir(parents=True)
    (packages / "deepspeed" / "__init__.py").write_text("print('carried')\n")
    visit = visit_to(tmp_path / "out", deepspeed=packages)
    assert two_hosts.install(visit) == {"status": 0, "wheels": 0, "deepspeed": True}
    status, log = visit.run("import", [two_hosts.sys.executable, "-c", "import deepspeed"], 60)
    assert (status, log.read_text()) == (0, "carried\n")


def test_a_program_is_ended_with_its_limit(tmp_path: Path) -> None:
    status, log = visit_to(tmp_path).run("slow", ["sleep", "600"], 1)
    assert status == 124 and log.exists()
