"""What mpzero's reports say of hosts, for scripts/requeue.sh.

    reports.py failure FILE JOB RESTART   of <checkpoint_dir>/failure.json: the host names, then its sentence
    reports.py doctor FILE                a line for each host that is to blame for a failure: its name, what was found

A doctor that hangs writes no FILE, but each host on which it hung leaves FILE.HOST.hung, which has the same form. Tabs
are between the fields. A report that is missing, or that another run of the job wrote, prints nothing. Standard library
only: it runs with any Python 3.
"""

import json
import sys
from pathlib import Path


def one_line(text: object) -> str:
    return " ".join(str(text).split())


def failure(report: dict, job: str, restart: str) -> list[str]:
    if str(report.get("job", "")) != job or str(report.get("restart", 0)) != restart:
        return []
    return [
        "\t".join([*dict.fromkeys(report.get("hosts", [])), one_line(report.get("reason") or "no reason is given")])
    ]


def doctor(report: dict) -> list[str]:
    lines = []
    for host in report.get("hosts", []):
        failures = [f for f in host.get("findings", []) if f.get("status") == "failure"]
        # What the whole job shares, such as a full checkpoint folder, another host would not mend.
        found = [f["message"] for f in failures if f.get("blame") != "job"]
        if found:
            lines.append(f"{host['host']}\t{one_line('; '.join(found))}")
    return lines


def read(path: Path) -> dict:
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return report if isinstance(report, dict) else {}


def read_doctor(path: Path) -> dict:
    report = read(path)
    if report or not path.parent.is_dir():
        return report
    names = (name for name in path.parent.iterdir() if name.name.startswith(path.name) and name.suffix == ".hung")
    return {"hosts": [host for name in sorted(names) for host in read(name).get("hosts", [])]}


def main(arguments: list[str]) -> int:
    kind, path = arguments[0], Path(arguments[1])
    lines = failure(read(path), *arguments[2:4]) if kind == "failure" else doctor(read_doctor(path))
    sys.stdout.writelines(line + "\n" for line in lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
