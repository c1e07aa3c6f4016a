"""Reports a run's progress in the status of its TrainJob, if the cluster has Kubeflow Trainer's status server.

Kubeflow Trainer sets three environment variables in the launcher's pod (feature gate TrainJobStatus, alpha in release
2.3): the server's address, its CA certificate, and the path of a token file. The token is renewed regularly.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import math
import os
import re
import ssl
import sys
import time
import urllib.parse
from datetime import UTC, datetime
from pathlib import Path

from run_files.metric_names import validation_losses
from run_files.regular_files import NotReadable, read_text
from run_files.values import whole

from run_follow.following import FollowError, Row, Sink, last_start

ADDRESS, CERTIFICATE, TOKEN = (f"KUBEFLOW_TRAINER_SERVER_{name}" for name in ("URL", "CA_CERT", "TOKEN"))
# A shorter interval would overload the cluster's API server.
PAUSE_SECONDS = 5.0
PATIENCE_SECONDS = 5.0
LONGEST_SECONDS = 1e9
TOKEN_FORM = re.compile(r"[A-Za-z0-9._~+/-]+=*")
METRICS = ("loss", "lr", "grad_norm", "tokens", "tokens_per_second", "mfu", "step_seconds")


class TrainJobStatus(Sink):
    """Sends only the newest step. If the server does not respond, warns once and continues with the next step."""

    most_unsaved = 1000  # repeated steps are harmless

    def __init__(self, folder: Path, project: str):
        missing = [name for name in (ADDRESS, CERTIFICATE, TOKEN) if not os.environ.get(name)]
        if missing:
            raise FollowError(f"{missing[0]} is not set: enable Kubeflow Trainer's feature gate TrainJobStatus.")
        self.address = safe_address(os.environ[ADDRESS])
        self.events = folder.parent / "events.jsonl"
        self.row: Row | None = None  # next row to send
        self.sent = -math.inf  # time on the monotonic clock
        self.warned = False

    @property
    def target(self) -> str:
        return f"the TrainJob's status at {self.address}"

    def write(self, row: Row) -> None:
        self.row = row

    def flush(self) -> None:
        if self.row is not None and time.monotonic() - self.sent >= PAUSE_SECONDS:
            self._send()

    def close(self) -> None:
        if self.row is not None:
            self._send()

    def _send(self) -> None:
        row, self.row, self.sent = self.row, None, time.monotonic()
        try:
            steps = whole(last_start(self.events, row.run_id).get("max_steps"))
            post(self.address, status_of(row, steps))
        except (OSError, ValueError, NotReadable, http.client.HTTPException) as error:
            if not self.warned:
                reason = " ".join(str(error).split())
                print(f"follow.py: warning: cannot update {self.target} ({reason}).", file=sys.stderr, flush=True)
            self.warned = True


def safe_address(address: str) -> str:
    """Returns the address if it is https or loopback, so that the token is never sent unencrypted.

    Raises: FollowError
    """
    try:
        parts = urllib.parse.urlsplit(address)
        host = parts.hostname
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https"):
        raise FollowError(f"{ADDRESS}={address} is not an https address: use the address that Kubeflow Trainer sets.")
    if parts.scheme == "http" and not is_loopback(host):
        raise FollowError(f"{ADDRESS}={address} would send the pod's token unencrypted: use https.")
    return address


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def post(address: str, status: dict[str, object]) -> None:
    """Raises: OSError, ValueError, NotReadable, http.client.HTTPException"""
    # Read the file for each request, because the token is renewed.
    token = (read_text(Path(os.environ[TOKEN])) or "").strip()
    if not TOKEN_FORM.fullmatch(token):
        raise ValueError(f"{os.environ[TOKEN]} contains no token")
    parts = urllib.parse.urlsplit(address)
    # Unlike urllib, http.client neither follows redirects nor uses proxies, which would see the token.
    if parts.scheme == "https":
        context = ssl.create_default_context(cafile=os.environ[CERTIFICATE])
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=PATIENCE_SECONDS)
    with contextlib.closing(connection):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        path = parts._replace(scheme="", netloc="").geturl()
        connection.request("POST", path or "/", json.dumps({"trainerStatus": status}), headers)
        answer = connection.getresponse()
        if answer.status // 100 != 2:
            raise OSError(f"HTTP status {answer.status} {answer.reason}")


def status_of(row: Row, steps: int) -> dict[str, object]:
    """Returns the TrainJob's status. `steps`: length of the run; 0: unknown."""
    metrics = [{"name": "step", "value": str(row.step)}]
    names = [name for name in METRICS if name in row.values] + list(validation_losses(row.values))
    metrics += [{"name": name, "value": f"{row.values[name]:.6g}"} for name in names]
    status: dict[str, object] = {
        "metrics": metrics,
        "lastUpdatedTime": datetime.fromtimestamp(row.time, UTC).isoformat(timespec="seconds"),
    }
    if steps:
        left = max(steps - row.step, 0)
        status["progressPercentage"] = min(100 * row.step // steps, 100)
        remaining = left * row.values.get("step_seconds", math.nan)
        if 0 <= remaining < LONGEST_SECONDS:
            status["estimatedRemainingSeconds"] = round(remaining)
    return status
