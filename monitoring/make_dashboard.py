#!/usr/bin/env python3
"""Writes monitoring/grafana/dashboards/mpzero.json, the Grafana dashboard of a run."""

from __future__ import annotations

import json
from pathlib import Path

OUTPUT = Path(__file__).parent / "grafana/dashboards/mpzero.json"
SOURCE = {"type": "prometheus", "uid": "$datasource"}
WIDTH = 24  # columns of Grafana's grid
OF_RUN = '{run_id="$run"}'
OF_NODES = '{run_id="$run",node=~"$node"}'

# Panels by row. Panel: title, Grafana unit, width, and (expression, legend) pairs.
ROWS = {
    "Run": [
        ("Step", "none", 4, [(f"mpzero_step{OF_RUN}", "step")]),
        ("Loss", "none", 4, [(f"mpzero_loss{OF_RUN}", "loss")]),
        ("Tokens per second", "short", 4, [(f"mpzero_tokens_per_second{OF_RUN}", "tokens/s")]),
        ("MFU", "percentunit", 4, [(f"mpzero_mfu_ratio{OF_RUN}", "MFU")]),
        ("Remaining time", "s", 4, [
            (f"(mpzero_max_steps{OF_RUN} - mpzero_step{OF_RUN}) / rate(mpzero_steps_total{OF_RUN}[15m])", "left")]),
        ("Age of the newest checkpoint", "s", 4, [(f"time() - mpzero_checkpoint_timestamp_seconds{OF_RUN}", "age")]),
    ],
    "Training": [
        ("Loss", "none", 12, [
            (f"mpzero_loss{OF_RUN}", "training"), (f"mpzero_validation_loss{OF_RUN}", "validation {{set}}")]),
        ("Gradient norm", "none", 6, [(f"mpzero_grad_norm{OF_RUN}", "norm")]),
        ("Learning rate", "sci", 6, [(f"mpzero_learning_rate{OF_RUN}", "rate")]),
    ],
    "Time": [
        ("Throughput", "short", 12, [(f"mpzero_tokens_per_second{OF_RUN}", "tokens/s")]),
        ("Time breakdown of a step, 5-minute mean", "s", 12, [
            (f"mpzero:step_part_seconds:mean5m{OF_RUN}", "{{part}}")]),
        ("Step duration, percentiles", "s", 12, [
            (f"histogram_quantile({share}, sum by (le) (rate(mpzero_step_seconds_bucket{OF_RUN}[9m])))", f"{share:.0%}")
            for share in (0.5, 0.9, 0.99)]),
        ("Slowest rank", "none", 6, [(f"mpzero_slowest_rank{OF_RUN}", "rank")]),
        ("Slowdown of the slowest rank", "percentunit", 6, [
            (f"mpzero_slowest_rank_ratio{OF_RUN}", "share")]),
    ],
    "Checkpoints and memory": [
        ("Checkpoint duration", "s", 8, [(f"mpzero_checkpoint_duration_seconds{OF_RUN}", "to write")]),
        ("Training paused for checkpoints", "s", 8, [
            (f"increase(mpzero_checkpoint_paused_seconds_total{OF_RUN}[1h])", "per hour")]),
        ("Peak memory of rank 0", "bytes", 8, [
            (f"mpzero_memory_peak_bytes{OF_RUN}", "peak"), (f"mpzero_memory_planned_bytes{OF_RUN}", "estimated")]),
    ],
    "Ranks": [
        ("Step time of each rank, excluding waits", "s", 24, [(f"mpzero_rank_own_seconds{OF_RUN}", "{{rank}}")]),
    ],
    "GPUs": [
        ("GPU utilization", "percentunit", 12, [
            (f"mpzero_gpu_utilization_ratio{OF_NODES}", "{{node}} {{gpu}}")]),
        ("SM clock", "hertz", 12, [
            (f"mpzero_gpu_sm_clock_hertz{OF_NODES}", "{{node}} {{gpu}}")]),
        ("Power", "watt", 8, [(f"mpzero_gpu_power_watts{OF_NODES}", "{{node}} {{gpu}}")]),
        ("Temperature", "celsius", 8, [(f"mpzero_gpu_temperature_celsius{OF_NODES}", "{{node}} {{gpu}}")]),
        ("Memory in use", "bytes", 8, [(f"mpzero_gpu_memory_used_bytes{OF_NODES}", "{{node}} {{gpu}}")]),
        ("Thermal and hardware throttling", "none", 8, [
            ('mpzero_gpu_throttled{run_id="$run",node=~"$node",reason=~".*slowdown"}', "{{node}} {{gpu}} {{reason}}")]),
        ("NVLink and memory errors per hour", "none", 8, [
            (f"increase(mpzero_gpu_nvlink_errors_total{OF_NODES}[1h])", "{{node}} {{gpu}} NVLink"),
            (f"increase(mpzero_gpu_ecc_errors_total{OF_NODES}[1h])", "{{node}} {{gpu}} {{type}}")]),
        ("Xid errors", "none", 8, [(f"mpzero_gpu_xid_errors_total{OF_NODES}", "{{node}} {{gpu}}")]),
    ],
    "Nodes": [
        ("EFA, bytes sent", "Bps", 12, [
            (f"sum by (node) (rate(mpzero_rdma_tx_bytes_total{OF_NODES}[5m]))", "{{node}}")]),
        ("EFA, packets dropped", "pps", 12, [
            (f"sum by (node) (rate(mpzero_rdma_rx_drops_total{OF_NODES}[5m]))", "{{node}}")]),
        ("Network interfaces, bytes sent", "Bps", 12, [
            (f"rate(mpzero_network_transmit_bytes_total{OF_NODES}[5m])", "{{node}} {{device}}")]),
        ("CPU utilization", "percentunit", 12, [(
            f'1 - sum by (node) (rate(mpzero_host_cpu_seconds_total{{run_id="$run",node=~"$node",mode="idle"}}[5m])) / '
            f"sum by (node) (rate(mpzero_host_cpu_seconds_total{OF_NODES}[5m]))", "{{node}}")]),
        ("Memory available", "bytes", 12, [(f"mpzero_host_memory_available_bytes{OF_NODES}", "{{node}}")]),
        ("File systems, available fraction", "percentunit", 12, [
            (f"mpzero_host_disk_available_bytes{OF_NODES} / mpzero_host_disk_bytes{OF_NODES}", "{{node}} {{folder}}")]),
    ],
}  # fmt: skip

# Panel types by row; "status-history" shows one line per rank, colored by time.
KINDS = {"Run": "stat", "Ranks": "status-history"}
COLORS = {"stat": "thresholds", "status-history": "continuous-BlYlRd"}


def dashboard() -> dict:
    panels: list[dict] = []
    y = 0
    for title, row in ROWS.items():
        panels.append({"type": "row", "title": title, "gridPos": {"h": 1, "w": WIDTH, "x": 0, "y": y}})
        y, x, height = y + 1, 0, 4 if title == "Run" else 8
        for name, unit, width, queries in row:
            if x + width > WIDTH:
                x, y = 0, y + height
            place = {"h": height, "w": width, "x": x, "y": y}
            panels.append(panel(name, unit, queries, place, KINDS.get(title, "timeseries")))
            x += width
        y += height
    for number, each in enumerate(panels, 1):
        each["id"] = number
    return {
        "uid": "mpzero-run",
        "title": "mpzero",
        "schemaVersion": 37,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [
            {"type": "datasource", "name": "datasource", "query": "prometheus"},
            variable("run", "label_values(mpzero_step, run_id)"),
            variable("node", 'label_values(mpzero_up{run_id="$run"}, node)', multi=True),
        ]},
        "panels": panels,
    }  # fmt: skip


def panel(title: str, unit: str, queries: list[tuple[str, str]], place: dict, kind: str) -> dict:
    return {
        "type": kind,
        "title": title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {
            "defaults": {"unit": unit, "color": {"mode": COLORS.get(kind, "palette-classic")}},
            "overrides": [],
        },
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
            for number, (expression, legend) in enumerate(queries)
        ],
    }


def variable(name: str, query: str, multi: bool = False) -> dict:
    return {
        "type": "query",
        "name": name,
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 2 if not multi else 1,
        "multi": multi,
        "includeAll": multi,
    }


def text() -> str:
    """Returns JSON with one line per panel."""
    whole = dashboard()
    panels = ",\n".join(json.dumps(each) for each in whole.pop("panels"))
    return f'{json.dumps(whole)[:-1]}, "panels": [\n{panels}\n]}}\n'


if __name__ == "__main__":
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(text(), encoding="utf-8")
    print(OUTPUT)
