"""What mpzero's reports say of hosts, for scripts/requeue.sh.

    reports.py failure FILE JOB RESTART   of <checkpoint_dir>/failure.json: the host names, then its sentence
    reports.py doctor FILE                a line for each host that is to blame for a failure: its name, what was found

A doctor that hangs writes no FILE, but each host on which it hung leaves FILE.HOST.hung, which has the same form. Tabs
are between the fields. A report that is missing, or that another run of the job wrote, prints nothing; one that is
damaged prints nothing either, and a warning on stderr. Others may have written it: what is printed are names of hosts
and text without control characters. Standard library only, and any Python from 3.8 on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from untrusted import NAME, NotReadable, printable, read

MOST_HOSTS = 10_000


def is_host(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def objects(value: object) -> list[dict]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def failure(report: dict, job: str, restart: str) -> list[str]:
    if str(report.get("job", "")) != job or str(report.get("restart", 0)) != restart:
        return []
    named = report.get("hosts", [])
    hosts = [host for host in named if is_host(host)] if isinstance(named, list) else []
    return ["\t".join([*dict.fromkeys(hosts), printable(report.get("reason") or "") or "no reason is given"])]


def doctor(report: dict) -> list[str]:
    lines = []
    for host in objects(report.get("hosts")):
        failures = [f for f in objects(host.get("findings")) if f.get("status") == "failure"]
        # What the whole job shares, such as a full checkpoint folder, another host would not mend.
        found = [str(f.get("message", "it does not say why")) for f in failures if f.get("blame") != "job"]
        if found and is_host(host.get("host")):
            lines.append(f"{host['host']}\t{printable('; '.join(found))}")
    return lines


def load(path: Path) -> dict:
    try:
        text = read(path)
        report = {} if text is None else json.loads(text)
    except NotReadable as error:
        warn(str(error))
    except (ValueError, RecursionError):
        warn(f"{path} is no JSON")
    else:
        if isinstance(report, dict):
            return report
        warn(f"{path} is no JSON object")
    return {}


def warn(what: str) -> None:
    print(f"mpzero: warning: {printable(what)}: this report is not looked at.", file=sys.stderr)


def load_doctor(path: Path) -> dict:
    report = load(path)
    if report or not path.parent.is_dir():
        return report
    names = [name for name in path.parent.iterdir() if name.name.startswith(path.name) and name.suffix == ".hung"]
    return {"hosts": [host for name in sorted(names)[:MOST_HOSTS] for host in objects(load(name).get("hosts"))]}


def main(arguments: list[str]) -> int:
    kind, path = arguments[0], Path(arguments[1])
    lines = failure(load(path), *arguments[2:4]) if kind == "failure" else doctor(load_doctor(path))
    sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    sys.stdout.writelines(line + "\n" for line in lines)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
