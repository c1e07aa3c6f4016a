"""bench/limited_network.py: a small case, where network namespaces are permitted."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import limited_network
import pytest
import tcp_streams
import tiny_run
from limited_network import MODEL, collectives, parameters_of, predicted_bytes
from trainer import BUILD, ENVIRONMENT, num_gpus
from two_hosts import collective_rates
from two_namespaces import ADDRESSES, HOSTS, Link, all_cores, reason_to_skip, two_hosts

REASON = reason_to_skip()
needs_namespaces = pytest.mark.skipif(REASON is not None, reason=REASON or "")


def test_what_a_step_sends() -> None:
    # As mpzero counts and prints them at the start of these runs.
    assert parameters_of(tiny_run.MODEL) == 17_600
    assert parameters_of(MODEL) == 14_685_184
    # By hand: half of 100 parameters' gradients and of the parameters, 4 bytes each; or of four times the gradients.
    assert predicted_bytes(100, levels=2, accumulation=4) == 400
    assert predicted_bytes(100, levels=1, accumulation=4) == 1000
    assert predicted_bytes(100, levels=2, accumulation=4, nodes=4) == 600
    assert collectives({"num_hidden_layers": 2}, levels=2, accumulation=4) == 9
    assert collectives({"num_hidden_layers": 2}, levels=1, accumulation=4) == 21


@needs_namespaces
@pytest.mark.parametrize(
    "link",
    [Link(gigabits=0.2), Link(gigabits=0.2, milliseconds=5)],
    ids=lambda link: link.name,
)
def test_a_link_is_as_slow_as_it_is_told(link: Link) -> None:
    with two_hosts(link) as hosts:
        assert hosts.run(1, "hostname").strip() == HOSTS[1]
        streams = limited_network.streams_of(hosts, 0.5)
        # 25 MB/s; a burst may come in addition.
        assert 0 < streams["sent"]["1"] < 0.2 / 8 * 1.5
        assert streams["round_trip_us"] >= 2000 * link.milliseconds
        assert hosts.sent_bytes(0) > 1e6
        assert streams["address"] == ADDRESSES[1]


@needs_namespaces
def test_packets_of_a_connection_stay_in_order() -> None:
    """The queue drops none, after which others would come out of order."""
    with two_hosts(Link(gigabits=10)) as hosts:
        limited_network.streams_of(hosts, 0.5, (16, 32))
        for host in range(2):
            lines = hosts.run(host, "cat /proc/net/netstat").splitlines()
            counted = dict(zip(lines[0].split()[1:], lines[1].split()[1:], strict=True))
            assert counted["TCPOFOQueue"] == "0"


def test_a_mask_of_all_cores() -> None:
    # As in Documentation/networking/scaling.rst and cpumask_print_to_pagebuf of Linux.
    assert [all_cores(count) for count in (1, 2, 32, 40)] == ["1", "3", "ffffffff", "ff,ffffffff"]


@needs_namespaces
def test_each_host_knows_the_other_by_name() -> None:
    with two_hosts(Link()) as hosts:
        for host in range(2):
            assert hosts.run(host, f"getent hosts {HOSTS[1 - host]}").split()[0] == ADDRESSES[1 - host]
        assert hosts.run(0, "pwd").strip() == str(Path.cwd())
    assert not set(HOSTS) & set(Path("/etc/hosts").read_text().split())


@needs_namespaces
def test_the_doctor_measures_between_the_hosts(tmp_path: Path) -> None:
    program = str(BUILD.resolve() / "bin" / "mpzero")
    words = [program, "doctor", "--bandwidth", "--device=cpu", f"--checkpoint_dir={tmp_path}"]
    with two_hosts(Link(gigabits=1)) as hosts:
        done = subprocess.run(
            [*hosts.mpirun(tmp_path / "agent"), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **ENVIRONMENT},
        )
    assert "bandwidth_between" in done.stdout, done.stdout + done.stderr
    rates = collective_rates(done.stdout)
    # The link carries 0.125 GB/s; a burst may come in addition.
    assert 0 < rates["all-gather"]["16"] < 0.15, done.stdout


@pytest.mark.skipif(num_gpus() > 0, reason="there is a GPU")
@needs_namespaces
def test_what_mpi_carries_does_not_pass_for_nccl_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    args = argparse.Namespace(build=BUILD, folder=tmp_path, limit=100)
    work = limited_network.work_of("cuda", tmp_path)
    with two_hosts(Link()) as hosts:
        assert limited_network.doctor_rate(hosts, work, tmp_path / "link", args) is None
    assert "--device cuda" in (tmp_path / "link_doctor.log").read_text()


@needs_namespaces
def test_each_host_has_a_gpu_of_its_own(tmp_path: Path) -> None:
    with two_hosts(Link()) as hosts:
        words = [*hosts.mpirun(tmp_path / "agent", gpus=True), "sh", "-c", "echo $(hostname) $CUDA_VISIBLE_DEVICES"]
        done = subprocess.run(words, capture_output=True, text=True, check=False, env={**os.environ, **ENVIRONMENT})
    assert sorted(done.stdout.splitlines()) == [f"{HOSTS[0]} 0", f"{HOSTS[1]} 1"], done.stderr


def test_what_a_gpu_s_work_sends() -> None:
    work = limited_network.work_of("cuda", Path("folder"))
    # bench/RESULTS.md: 1.19 GB a node and step with two levels, 3.0 with one.
    parameters = parameters_of(work.model)
    assert parameters == 596_049_920
    sent = [predicted_bytes(parameters, levels=n, accumulation=4, bytes_each=work.bytes) / 1e9 for n in (2, 1)]
    assert sent == [pytest.approx(1.19, abs=5e-3), pytest.approx(2.98, abs=5e-3)]


@needs_namespaces
def test_nothing_is_left_of_hosts_whose_owner_is_killed() -> None:
    program = (
        f"import sys, time; sys.path.insert(0, {str(Path(tcp_streams.__file__).parent)!r})\n"
        "from two_namespaces import *\n"
        "with two_hosts(Link(1, 1)) as hosts:\n"
        "    print(*hosts.pids, *(p.pid for p in multiprocessing.active_children()), flush=True)\n"
        "    time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as owner:
        pids = owner.stdout.readline().split()
        assert len(pids) == 3
        owner.kill()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.e2e
@needs_namespaces
def test_a_step_sends_what_the_formula_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    small = {**MODEL, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2}
    monkeypatch.setattr(limited_network, "MODEL", small)
    own = ["--gigabits", "1", "--milliseconds", "0", "0.5"]
    own += ["--steps=3", "--warm_up=1", "--seconds=0.2"]
    assert limited_network.main([str(tmp_path), f"--build={BUILD}", *own]) == 0, capsys.readouterr().out
    rows = json.loads((tmp_path / "limited.json").read_text())
    found = [(row["link"]["milliseconds"], row["levels"]) for row in rows]
    assert found == [(0, 2), (0, 1), (0.5, 2), (0.5, 1)]
    for row in rows:
        # mpzero also counts the step's figures, and pads its units.
        assert row["counted_mb"] == pytest.approx(row["formula_mb"], rel=0.02)
        # Headers, acknowledgements and the start of the run; no collective sends twice.
        assert row["formula_mb"] < row["interface_mb"] < 1.6 * row["formula_mb"]
        assert row["communication_ms"] > 0 and row["step_ms"] > row["communication_ms"]
        assert row["communication_ms"] == pytest.approx(sum(row["waits_ms"]) / 2, abs=0.1)
    assert (tmp_path / "limited.md").read_text() in capsys.readouterr().out


@pytest.mark.e2e
@needs_namespaces
def test_what_takes_too_long_is_a_row_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    own = ["--gigabits", "1", "--milliseconds", "0", "--steps=100000", "--seconds=0.2", "--limit=2"]
    assert limited_network.main([str(tmp_path), f"--build={BUILD}", *own]) == 1
    rows = json.loads((tmp_path / "limited.json").read_text())
    assert [(row["levels"], row["error"]) for row in rows] == [(2, "timed out after 2 s"), (1, "timed out after 2 s")]
    assert (tmp_path / "limited.md").read_text() in capsys.readouterr().out
    left = subprocess.run(["pgrep", "-f", str(tmp_path)], capture_output=True, text=True, check=False)
    assert not left.stdout


@needs_namespaces
def test_a_link_that_cannot_be_is_a_row_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []
    monkeypatch.setattr(limited_network, "train", lambda *of: trained.append(of[2].link))

    def no_streams(*_: object) -> dict:
        raise OSError("no stream")

    own = ["--gigabits", "1", "0", "--milliseconds", "0", "--levels", "2", "--seconds=0.2"]
    with monkeypatch.context() as patch:
        patch.setattr(limited_network, "streams_of", no_streams)
        assert limited_network.main([str(tmp_path), *own]) == 1
    assert [row["error"] for row in json.loads((tmp_path / "limited.json").read_text())] == ["no stream", "no stream"]
    assert limited_network.main([str(tmp_path), *own]) == 0
    assert trained == [Link(gigabits=1), Link()]
