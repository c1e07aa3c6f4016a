"""The dashboard, the rules and the configuration in monitoring/ fit the metrics that the program exports."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "monitoring"))
import make_dashboard

sys.path.pop(0)

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "monitoring"
PANELS = [panel for panel in make_dashboard.dashboard()["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
RULES = yaml.safe_load((MONITORING / "rules.yml").read_text())
# Counters of RDMA devices, which have the driver's names.
OF_DRIVERS = re.compile(r"mpzero_rdma_\w+_total")


def exported() -> set[str]:
    names = set()
    for source in (ROOT / "app/exporter").glob("*.cpp"):
        text = source.read_text()
        names |= set(re.findall(r'"(mpzero_\w+[a-z])"', text))
        for name in re.findall(r'histogram\(\s*"(mpzero_\w+)"', text):
            names |= {f"{name}_{end}" for end in ("bucket", "sum", "count")}
    return names


def rules(kind: str) -> list[dict]:
    return [rule for group in RULES["groups"] for rule in group["rules"] if kind in rule]


def recorded() -> set[str]:
    return {rule["record"] for rule in rules("record")}


@pytest.mark.parametrize(
    "text", [*EXPRESSIONS, *(rule["expr"] for rule in rules("expr")), (MONITORING / "rules_test.yml").read_text()]
)
def test_what_is_asked_for_is_exported(text):
    asked = set(re.findall(r"(?<![\w:])mpzero[_:][\w:]+", text)) - recorded()
    assert {name for name in asked if not OF_DRIVERS.fullmatch(name)} <= exported()


def test_the_dashboard_is_that_of_the_program():
    assert make_dashboard.OUTPUT.read_text() == make_dashboard.text(), "run monitoring/make_dashboard.py"


def test_panels_do_not_overlap_and_have_their_own_number():
    cells = [
        (x, y)
        for panel in make_dashboard.dashboard()["panels"]
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < make_dashboard.WIDTH
    numbers = [panel["id"] for panel in make_dashboard.dashboard()["panels"]]
    assert len(numbers) == len(set(numbers))


def test_each_alert_has_a_severity_a_sentence_and_a_test():
    tested = {
        check["alertname"]
        for test in yaml.safe_load((MONITORING / "rules_test.yml").read_text())["tests"]
        for check in test["alert_rule_test"]
        if check["exp_alerts"]
    }
    for rule in rules("alert"):
        assert rule["labels"]["severity"] in ("page", "warn") and rule["annotations"]["summary"]
    assert tested == {rule["alert"] for rule in rules("alert")}


def test_what_compose_mounts_is_there():
    compose = yaml.safe_load((MONITORING / "compose.yml").read_text())
    for service in compose["services"].values():
        assert not service["image"].endswith(":latest")
        for volume in service["volumes"]:
            source = volume.rsplit(":", 2)[0]
            assert source.startswith("${") or (MONITORING / source).exists(), source
        # Neither asks for a password that the user has chosen.
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])


@pytest.fixture
def promtool():
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed")

    def run(*arguments: str) -> str:
        result = subprocess.run([program, *arguments], cwd=MONITORING, capture_output=True, text=True, timeout=120)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


def test_prometheus_takes_the_configuration(promtool):
    promtool("check", "config", "prometheus.yml")


def test_alerts_fire_for_what_they_are_for_and_nothing_else(promtool):
    promtool("test", "rules", "rules_test.yml")


def test_prometheus_understands_each_panel(promtool, tmp_path):
    of_panels = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(EXPRESSIONS)]
    path = tmp_path / "panels.yml"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": of_panels}]}))
    promtool("check", "rules", str(path))
