"""A real Prometheus watches a job of two nodes: what it scrapes, and which alerts fire when something is wrong.

The rules are those of monitoring/, with seconds for minutes, so that a test need not wait for hours.
"""

import json
import os
import re
import shutil
import signal
import threading
import time

import pytest
import yaml
from conftest import REPOSITORY, Run

pytestmark = [pytest.mark.slurm, pytest.mark.nightly, pytest.mark.usefixtures("built")]

PORT = 9410
# Generous: it only ends a test that hangs.
LIMIT_SECONDS = 240
ASK = """
import sys, urllib.parse, urllib.request
query = urllib.parse.urlencode({"query": sys.argv[1]})
print(urllib.request.urlopen("http://127.0.0.1:9090/api/v1/query?" + query, timeout=20).read().decode())
"""


def in_seconds(rules: str) -> str:
    """The rules with seconds for minutes, and a checkpoint that is overdue after three."""
    rules = re.sub(r"(\d+)h\b", lambda hours: f"{60 * int(hours[1])}s", rules)
    return re.sub(r"\b(\d+)m\b", r"\1s", rules).replace("2 * 3600", "3")


class Prometheus:
    """Prometheus on the controller of the cluster, scraping once a second the targets of a folder."""

    def __init__(self, run: Run):
        self.run = run
        folder = run.folder / "prometheus"
        self.targets = folder / "targets"
        self.targets.mkdir(parents=True)
        configuration = yaml.safe_load((REPOSITORY / "monitoring/prometheus.yml").read_text())
        configuration["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        configuration["scrape_configs"][0]["file_sd_configs"][0]["refresh_interval"] = "1s"
        (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
        (folder / "rules.yml").write_text(in_seconds((REPOSITORY / "monitoring/rules.yml").read_text()))
        data = f"--storage.tsdb.path={folder}/data"
        program = shutil.which("prometheus")
        self.process = run.cluster.start([program, f"--config.file={folder}/prometheus.yml", data])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # nsenter's child is in another process-id namespace, and in its group.
        os.killpg(self.process.pid, signal.SIGTERM)
        self.process.communicate(timeout=60)

    def ask(self, query: str) -> list[tuple[dict, float]]:
        """The labels and the value of each sample."""
        answer = self.run.cluster.run(["python3", "-c", ASK, query], check=False)
        if answer.returncode != 0:
            return []
        return [(one["metric"], float(one["value"][1])) for one in json.loads(answer.stdout)["data"]["result"]]

    def wait_for(self, query: str, samples: int) -> list[tuple[dict, float]]:
        deadline = time.monotonic() + LIMIT_SECONDS
        while len(answer := self.ask(query)) < samples:
            assert time.monotonic() < deadline, f"{query}: {answer}; alerts: {self.ask('ALERTS')}"
            time.sleep(0.5)
        return answer

    def wait_for_alert(self, name: str) -> dict:
        return self.wait_for(f'ALERTS{{alertname="{name}",alertstate="firing"}}', 1)[0][0]


@pytest.fixture
def prometheus(run):
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed")
    with Prometheus(run) as started:
        yield started


def watched(run: Run, prometheus: Prometheus, **variables: str):
    """A job of two nodes with two ranks each, whose endpoints Prometheus finds."""
    flags = ("--metrics_port", str(PORT), "--metrics_address", "0.0.0.0", "--metrics_sd_dir", str(prometheus.targets))
    settings = {"MAX_STEPS": "1000000", "NPROC": "2", "CHECKPOINT_FREQ": "1000000", **variables}
    return run.start("--nodes=2", flags=flags, **settings)


def ranks_of(run: Run, node: int) -> list[int]:
    """Process ids of a node's ranks."""
    return sorted(pid for pid, command in run.cluster.processes(node) if re.match(r"\S*bin/mpzero train ", command))


def test_both_nodes_are_scraped_and_a_stopped_rank_raises_an_alert(run, prometheus):
    job = watched(run, prometheus)
    up = prometheus.wait_for('up{job="mpzero"} == 1', 2)
    assert {labels["instance"] for labels, _ in up} == {f"node0:{PORT}", f"node1:{PORT}"}
    assert len(prometheus.wait_for("mpzero_host_memory_bytes", 2)) == 2
    prometheus.wait_for("mpzero_step > 20", 1)
    ranks = prometheus.wait_for("mpzero_rank_own_seconds", 4)
    assert {labels["rank"] for labels, _ in ranks} == {"0", "1", "2", "3"}
    ((labels, _),) = prometheus.ask("mpzero_loss")
    assert labels["node"] == "node0" and re.fullmatch("[0-9a-f]{16}", labels["run_id"])
    assert not prometheus.ask('ALERTS{alertname="MpzeroNoProgress"}')
    stopped = ranks_of(run, 1)[0]
    os.kill(stopped, signal.SIGSTOP)
    try:
        alert = prometheus.wait_for_alert("MpzeroNoProgress")
        assert alert["run_id"] == labels["run_id"] and alert["severity"] == "page"
    finally:
        os.kill(stopped, signal.SIGCONT)
    run.cluster.cancel_all()
    job.wait()


def test_a_slow_rank_and_an_overdue_checkpoint_raise_alerts(run, prometheus):
    job = watched(run, prometheus, CHECKPOINT_FREQ="200")
    prometheus.wait_for("mpzero_checkpoints_total > 0", 1)
    prometheus.wait_for_alert("MpzeroCheckpointOverdue")
    slow = ranks_of(run, 1)[1]
    ends = threading.Event()

    def plant() -> None:
        while not ends.wait(0.02):
            os.kill(slow, signal.SIGSTOP)
            ends.wait(0.2)
            os.kill(slow, signal.SIGCONT)

    straggler = threading.Thread(target=plant)
    straggler.start()
    try:
        alert = prometheus.wait_for_alert("MpzeroStraggler")
        assert alert["severity"] == "warn" and alert["rank"] in ("2", "3")
        slowest = prometheus.ask("avg_over_time(mpzero_slowest_rank[5s])")[0][1]
        assert 2 <= slowest <= 3
    finally:
        ends.set()
        straggler.join()
        os.kill(slow, signal.SIGCONT)
    run.cluster.cancel_all()
    job.wait()
