"""scripts/requeue doctor: random clusters, whose doctor leaves reports in the folder and lines in the job's log.

No healthy host is left out, whatever hangs or fails, and whatever other jobs have left.
"""

import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
from requeue import command
from requeue.nodes import Node
from requeue.table import Kind

OWN_CHECKS = ("gpus", "cuda", "libfabric", "host")
FOLDER_CHECKS = ("checkpoint_write", "report")
JOB, RESTART = "7", 1


def finding(check: str, status: str = "failure", blame: str = "host") -> dict:
    return {"check": check, "status": status, "message": "seen", "remedy": "do", "blame": blame}


def report(hosts: dict[str, dict], job: str = JOB, restart: int = RESTART) -> str:
    entries = [{"host": host, "status": found["status"], "findings": [found]} for host, found in hosts.items()]
    return json.dumps({"job": job, "restart": restart, "hosts": entries})


class Scenario:
    def __init__(self, seed: int, folder: Path):
        self.choose = random.Random(seed)
        self.folder = folder
        self.hosts = [f"n{number}" for number in range(self.choose.randint(1, 9))]
        self.log = ""
        self.status = 1
        self.sick: set[str] = set()
        self.kind = self.choose.choice(("hang", "shared hang", "mount", "clock", "settings", "sick", "write"))
        {
            "hang": self.one_hangs,
            "shared hang": self.all_hang,
            "mount": self.mount_hangs,
            "clock": self.clock_is_wrong,
            "settings": self.settings_are_wrong,
            "sick": self.some_are_sick,
            "write": self.last_write_hangs,
        }[self.kind]()
        self.leave_reports_of_others()

    def hang(self, host: str, check: str, in_log: bool, folder_works: bool = True) -> None:
        self.status = 122
        if in_log:
            self.log += f"mpzero: doctor: {host} hangs in {check} (job {JOB}, restart {RESTART}): no response\n"
        if folder_works:
            (self.folder / f"doctor.json.{host}.hung").write_text(report({host: finding(check)}))

    def one_hangs(self) -> None:
        self.sick = {self.choose.choice(self.hosts)}
        self.hang(*self.sick, self.choose.choice(OWN_CHECKS), in_log=self.choose.random() < 0.5)

    def all_hang(self) -> None:
        """The launcher may end some before they report; never more than half of them."""
        reporting = self.choose.sample(self.hosts, self.choose.randint((len(self.hosts) + 1) // 2, len(self.hosts)))
        check = self.choose.choice(FOLDER_CHECKS)
        for host in reporting:
            self.hang(host, check, in_log=True, folder_works=False)

    def mount_hangs(self) -> None:
        """Of one host; the others write into the folder."""
        sick = self.choose.choice(self.hosts)
        self.sick = {sick}
        in_log = self.choose.random() < 0.5
        self.hang(sick, self.choose.choice(FOLDER_CHECKS), in_log, folder_works=not in_log)
        for host in set(self.hosts) - self.sick:
            if in_log:
                self.log += f"mpzero: doctor: {host} responds in report (job {JOB}, restart {RESTART}): responds\n"
            text = report({host: finding("report", "ok", "")})
            (self.folder / f"doctor.json.{host}.answers").write_text(text)

    def clock_is_wrong(self) -> None:
        """Without a majority all hosts get a warning (check_clock())."""
        wrong = self.choose.sample(self.hosts, self.choose.randint(0, len(self.hosts) // 2))
        majority = 2 * len(wrong) < len(self.hosts)
        self.sick = set(wrong) if majority else set()
        states = {host: "failure" if host in self.sick else "ok" for host in self.hosts}
        if not majority:
            states = dict.fromkeys(self.hosts, "warning")
        found = {host: finding("clock", state, "host" if state == "failure" else "") for host, state in states.items()}
        (self.folder / "doctor.json").write_text(report(found))

    def settings_are_wrong(self) -> None:
        self.status = 2
        found = {host: finding("memlock", blame="job") for host in self.hosts}
        (self.folder / "doctor.json").write_text(report(found))

    def some_are_sick(self) -> None:
        self.sick = set(self.choose.sample(self.hosts, self.choose.randint(1, len(self.hosts))))
        found = {host: finding("gpus", "failure" if host in self.sick else "ok") for host in self.hosts}
        (self.folder / "doctor.json").write_text(report(found))

    def last_write_hangs(self) -> None:
        self.status = 122

    def leave_reports_of_others(self) -> None:
        for _ in range(self.choose.randint(0, 4)):
            host = self.choose.choice([*self.hosts, "x9"])
            job, restart = self.choose.choice((("8", RESTART), (JOB, 0), ("70", RESTART)))
            check = self.choose.choice(OWN_CHECKS + FOLDER_CHECKS)
            name = self.choose.choice(("doctor.json", f"doctor.json.{host}.hung"))
            if not (self.folder / name).exists():
                (self.folder / name).write_text(report({host: finding(check)}, job, restart))
            self.log += f"mpzero: doctor: {host} hangs in {check} (job {job}, restart {restart}): no response\n"


def decided(scenario: Scenario, monkeypatch) -> tuple[Kind, set[str]]:
    """The event that the job decides about, and the hosts that it blames."""
    events = []
    monkeypatch.setattr(command, "job_log", lambda: scenario.log)
    monkeypatch.setattr(command, "carry_out", lambda _, event: events.append(event))
    monkeypatch.setattr(command, "reclaims_nodes", lambda *_: False)
    slurm = SimpleNamespace(job=JOB, nodelist="n", partition="all", nodes=lambda: [Node(h) for h in scenario.hosts])
    arguments = SimpleNamespace(
        checkpoint_dir=scenario.folder, max_restarts=3, status=scenario.status, signalled=False, grace_period=0,
        minutes=5, no_tasks_on=(),
    )  # fmt: skip
    command.doctor(command.Job(arguments, slurm, JOB, RESTART))
    (event,) = events
    return event.kind, set(event.nodes) if event.kind is not Kind.SHARED_FAILURE else set()


@pytest.mark.parametrize("hundred", range(10))
def test_no_healthy_host_is_left_out_of_random_clusters(hundred, tmp_path, monkeypatch, capsys):
    kinds = set()
    for seed in range(100 * hundred, 100 * (hundred + 1)):
        folder = tmp_path / str(seed)
        folder.mkdir()
        scenario = Scenario(seed, folder)
        kind, blamed = decided(scenario, monkeypatch)
        where = f"seed {seed}: {scenario.kind} on {scenario.hosts}"
        # One node alone cannot tell whether its mount or the file system hangs.
        expected = set() if scenario.kind == "mount" and len(scenario.hosts) == 1 else scenario.sick
        assert blamed == expected, where
        if scenario.kind in ("shared hang", "write"):
            assert kind is Kind.SHARED_FAILURE, where
        if scenario.kind == "settings":
            assert kind is Kind.USER_ERROR, where
        kinds.add(scenario.kind)
    capsys.readouterr()
    assert len(kinds) == 7
