"""Calls kubernetes/render, and reads what it has written."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "kubernetes"


def render(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    """What kubernetes/render does once it has chosen UTF-8, in this process."""
    if str(KUBERNETES) not in sys.path:
        sys.path.insert(0, str(KUBERNETES))
    command = importlib.import_module("manifests.command")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = command.main([*arguments, str(folder)])
        except SystemExit as end:  # of argparse
            status = end.code
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def render_apart(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(KUBERNETES / "render"), *arguments, str(folder)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        env={**os.environ, **variables},
    )


def rendered(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    result = render(folder, *arguments)
    assert result.returncode == 0, result.stderr
    return manifests(folder)


def manifests(folder: Path) -> list[dict[str, Any]]:
    """The resources of a kustomization without Kustomize: its files and folders, with removing patches and a suffix."""
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())
    made: list[dict[str, Any]] = []
    for path in (folder / name for name in listed["resources"]):
        made += manifests(path) if path.is_dir() else yaml.safe_load_all(path.read_text())
    for manifest in made:
        manifest["metadata"]["name"] += listed.get("nameSuffix", "")
    for patch in listed.get("patches", ()):
        for step in yaml.safe_load(patch["patch"]):
            *keys, last = step["path"].strip("/").split("/")
            for manifest in (manifest for manifest in made if manifest["kind"] == patch["target"]["kind"]):
                value: Any = manifest
                for key in keys:
                    value = value[int(key) if isinstance(value, list) else key]
                if step["op"] == "remove":
                    del value[int(last) if isinstance(value, list) else last]
                else:
                    assert step["op"] == "test" and value[last] == step["value"]
    return made


def of_kind(made: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    found = [manifest for manifest in made if manifest["kind"] == kind]
    assert len(found) == 1, kind
    return found[0]


def variables(job: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry.get("value", "") for entry in job["spec"]["trainer"]["env"]}
