"""Assembles a page of text, tables and charts, with Plotly's JavaScript embedded."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from html import escape
from pathlib import Path

from plotly.offline import get_plotlyjs
from run_files.metric_names import validation_losses
from run_files.values import as_number, strings, whole

from run_report.charts import Chart, charts_of
from run_report.reading import Run, Start

HERE = Path(__file__).parent
MOST_WARNINGS = 50
LONGEST = 1e9  # seconds


def page_of(runs: list[Run]) -> str:
    charts = charts_of(runs)
    title = " and ".join(run.name for run in runs) if len(runs) < 4 else f"{len(runs)} runs"
    parts = [
        f"<h1>{escape(title)}</h1>",
        '<div class="runs">' + "".join(card(run, place) for place, run in enumerate(runs)) + "</div>",
        *[f'<p class="damage">{escape(f"{run.name}: {text}")}</p>' for run in runs for text in run.damage],
        section("Results", results_table(runs)),
        AXIS_CHOICE,
        '<div class="charts">' + "".join(box(chart, number) for number, chart in enumerate(charts)) + "</div>",
        section("Settings", settings_table(runs)),
        *[section(heading("Starts", run, runs), starts_table(run)) for run in runs if run.starts],
        *[section(heading("Memory", run, runs), memory_lines(run)) for run in runs if run.facts.get("memory")],
        *[section(heading("Warnings", run, runs), warning_list(run)) for run in runs if run.warnings],
    ]
    data = json.dumps([as_text({"traces": chart.traces, "layout": chart.layout}) for chart in charts], allow_nan=False)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{(HERE / 'page.css').read_text(encoding='utf-8')}</style></head><body><main>",
            *parts,
            "</main>",
            # Escape "<", because a run's text may contain "</script>".
            '<script type="application/json" id="charts">' + data.replace("<", "\\u003c") + "</script>",
            f"<script>{get_plotlyjs()}</script>",
            f"<script>{(HERE / 'page.js').read_text(encoding='utf-8')}</script>",
            "</body></html>",
        ]
    )


def as_text(value: object) -> object:
    """Escapes the strings of a chart, which Plotly renders as HTML, except for hover templates."""
    if isinstance(value, dict):
        return {key: inner if key == "hovertemplate" else as_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [as_text(inner) for inner in value]
    return escape(value, quote=False) if isinstance(value, str) else value


AXIS_CHOICE = """<p class="choice"><label>Horizontal axis <select id="axis"><option value="step">step</option>
<option value="tokens">tokens</option><option value="hours">hours</option></select></label>
Drag over a chart to zoom in; double-click to reset the zoom.</p>"""


def card(run: Run, place: int) -> str:
    """Returns a card with the key facts of a run."""
    facts = run.facts
    rows = [
        ("model", f"{facts.get('model_type', '')}, {whole(facts.get('parameters')):,} parameters" if facts else ""),
        ("hardware", f"{facts.get('devices', '')}; {hosts(facts)}" if facts else ""),
        ("step", show(run.last("step")) + (f" of {whole(facts['max_steps']):,}" if "max_steps" in facts else "")),
        ("loss", show(run.last("loss"))),
        *[(f"{label} loss", show(run.last(key))) for key, label in validation_losses(run.columns).items()],
        ("tokens", show(run.last("tokens"))),
        ("mean tokens/s", shown_as(",.0f", mean_speed(run))),
        ("mean MFU", shown_as(".1%", run.mean_rate("mfu"))),
        ("time", spent(run.summary) if run.summary else ""),
        ("starts", str(len(run.starts)) if run.starts else ""),
        ("version", str(facts.get("version", "")).split("\n")[0]),
    ]
    table = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows if value)
    failure = f'<p class="failure">{escape(failure_text(run.failure))}</p>' if run.failure else ""
    status = f'<p class="status">{escape(run.status)} <code>{escape(run.run_id)}</code></p>'
    style = f"border-top-color: var(--run-{place % 8})"
    content = f"<h2>{escape(run.name)}</h2>{status}{failure}<table>{table}</table>"
    return f'<section class="card" style="{style}">{content}</section>'


def mean_speed(run: Run) -> float:
    """Returns the tokens per second of step time, as in the log's last line."""
    total = as_number((run.summary or {}).get("tokens_per_second"))
    return total if math.isfinite(total) else run.mean_rate("tokens_per_second")


def spent(summary: dict) -> str:
    """Returns the elapsed time of all starts, the fraction spent in steps, and the GPU hours."""
    elapsed, in_steps, gpu_hours = (
        as_number(summary.get(key)) for key in ("elapsed_seconds", "step_seconds", "gpu_hours")
    )
    if not 0 < elapsed < LONGEST:
        return ""
    words = [f"{timedelta(seconds=round(elapsed))}", f"{in_steps / elapsed:.0%} in steps"]
    return ", ".join(words + ([f"{gpu_hours:.2f} GPU hours"] if gpu_hours > 0 else []))


def failure_text(failure: dict) -> str:
    return f"Failure report from {failure.get('time', 'an unknown time')}: {failure.get('reason', 'no reason given')}"


def hosts(facts: dict) -> str:
    names = sorted(set(strings(facts.get("hosts"))))
    more = ", ..." if len(names) > 4 else ""
    return f"{len(names)} host{'s' if len(names) != 1 else ''}: {', '.join(names[:4])}{more}"


def box(chart: Chart, number: int) -> str:
    return (
        f'<section class="chart"><h2>{escape(chart.title)}</h2><p class="about">{escape(chart.about)}</p>'
        f'<div class="plot" id="plot-{number}"></div></section>'
    )


def section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def heading(title: str, run: Run, runs: list[Run]) -> str:
    return title if len(runs) == 1 else f"{title} of {run.name}"


def results_table(runs: list[Run]) -> str:
    """Returns one row per run with the settings that differ; empty for a single run."""
    if len(runs) == 1:
        return ""
    settings, names = settings_of(runs)
    differing = [name for name in names if len({of_run.get(name, ["", ""])[1] for of_run in settings}) > 1]
    validations = {key: label for run in runs for key, label in validation_losses(run.columns).items()}
    losses = [*[(key, f"{label} loss") for key, label in validations.items()], ("loss", "loss")]
    rows = []
    for run, of_settings in zip(runs, settings, strict=True):
        of_run = [of_settings.get(name, ["", ""])[1] for name in differing]
        figures = [show(run.last(key)) for key, _ in losses]
        rows.append(([run.name, *of_run, show(run.last("step")), *figures], ""))
    return table_of(["run", *differing, "step", *[label for _, label in losses]], rows)


def settings_of(runs: list[Run]) -> tuple[list[dict[str, list[str]]], list[str]]:
    """Returns one dictionary of settings per run, keyed by setting name, and the names of all settings in any run."""
    settings = [{row[0]: row for row in rows_of(run.facts.get("settings"))} for run in runs]
    return settings, list(dict.fromkeys(name for of_run in settings for name in of_run))


def settings_table(runs: list[Run]) -> str:
    """Returns each setting with its value and origin; for several runs, one value per run, differing settings first."""
    settings, names = settings_of(runs)
    if not names:
        return ""
    single = len(runs) == 1
    head = ["setting", "value", "from"] if single else ["setting", *[run.name for run in runs]]
    rows = []
    for name in names:
        found = [of_run.get(name, ["", "", ""]) for of_run in settings]
        cells = [name, found[0][1], found[0][2]] if single else [name, *[row[1] for row in found]]
        differs = len({row[1] for row in found}) > 1
        rows.append((cells, "differs" if differs else ""))
    return table_of(head, sorted(rows, key=lambda row: not row[1]))


def rows_of(value: object) -> list[list[str]]:
    rows = [row for row in value if isinstance(row, list) and len(row) == 3] if isinstance(value, list) else []
    return [row for row in rows if all(isinstance(cell, str) for cell in row)]


def starts_table(run: Run) -> str:
    rows = [(start_cells(start), "") for start in run.starts]
    return table_of(["start (UTC)", "job", "hosts", "ranks", "after step", "steps", "checkpoints", "end"], rows)


def start_cells(start: Start) -> list[str]:
    began, end = start.began, start.end
    last = end or (start.saves[-1] if start.saves else {})
    how = "no end recorded" if end is None else str(end.get("status", ""))
    if end and end.get("reason"):
        how += f": {end['reason']}"
    return [
        utc(began.get("began")),
        str(began.get("job", "")),
        hosts(began),
        str(began.get("world_size", "")),
        str(began.get("steps_done", "")),
        str(last.get("steps", "")),
        str(len(start.saves)),
        how,
    ]


def memory_lines(run: Run) -> str:
    return "<pre>" + escape("\n".join(strings(run.facts["memory"]))) + "</pre>"


def warning_list(run: Run) -> str:
    shown = run.warnings[-MOST_WARNINGS:]
    left_out = len(run.warnings) - len(shown)
    more = f"<p>{left_out} earlier warnings are in events.jsonl.</p>" if left_out else ""
    items = "".join(f"<li>{utc(item.get('time'))} {escape(str(item.get('text', '')))}</li>" for item in shown)
    return f"{more}<ul>{items}</ul>"


def table_of(head: list[str], rows: list[tuple[list[str], str]]) -> str:
    """`rows`: cells and CSS class of each row."""
    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        f'<tr class="{kind}">' + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for cells, kind in rows
    )
    return f'<div class="wide"><table><thead><tr>{first}</tr></thead><tbody>{body}</tbody></table></div>'


def utc(seconds: object) -> str:
    try:
        return datetime.fromtimestamp(float(seconds), UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (TypeError, ValueError, OverflowError, OSError):
        return ""


def show(value: float) -> str:
    return shown_as(",.0f" if value.is_integer() else ".4g", value)


def shown_as(form: str, value: float) -> str:
    return format(value, form) if math.isfinite(value) else ""
