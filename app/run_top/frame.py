"""Formats a run as lines for a terminal."""

from __future__ import annotations

import math
import unicodedata

from run_files.metric_names import STEP_PARTS
from run_files.values import as_number

from run_top.nodes import NodeView
from run_top.reading import RunView

BARS, EIGHTHS = "▁▂▃▄▅▆▇█", ("", *"▏▎▍▌▋▊▉")
GIBIBYTE = 1 << 30
# A run is reported as silent if its newest step is older than both limits.
SILENT_STEPS, SILENT_SECONDS = 10, 30
LONGEST_SECONDS = 1e12


def frame_of(run: RunView, nodes: list[NodeView], now: float, width: int, rows: int) -> list[str]:
    """Returns at most `rows` lines of at most `width` columns, with the number of omitted ranks and nodes. `now`:
    Unix time in seconds."""
    lines = [title(run), state_of(run, now)]
    if run.metrics_file != "":
        if number(run.step, "step") == 0:
            return [cut(line, width) for line in lines[:rows]]
        lines += steps_of(run, width)
    saved = run.checkpoint
    if saved:
        ago = duration(now - number(saved, "time"))
        lines.append(f"saved  step {number(saved, 'step'):.0f}, {ago} ago, in {number(saved, 'seconds'):.1f} s")
    else:
        lines.append("saved  no checkpoint since the last start")
    if run.warning:
        lines.append(f"warn   {run.warning}")
    room = max(0, rows - len(lines))
    of_nodes = [line for node in nodes for line in lines_of(node)]
    for_ranks = max(room // 2, room - len(of_nodes)) if of_nodes else room
    lines += ranks_of(run, width, for_ranks)
    room = max(0, rows - len(lines))
    if len(of_nodes) > room > 0:
        of_nodes[room - 1 :] = [f"{len(of_nodes) - room + 1} more node lines are not shown"]
    return [cut(line, width) for line in (lines + of_nodes[:room])[:rows]]


def title(run: RunView) -> str:
    text, hosts = f"{run.start.get('model_type', '')}  run {run.start.get('run', '')}", run.hosts
    if hosts:
        text += f"  {counted(len(hosts), 'rank')} on {counted(len(set(hosts)), 'host')}"
    return text + (f"  start {run.starts}" if run.starts > 1 else "")


def state_of(run: RunView, now: float) -> str:
    began, last = number(run.start, "began"), number(run.step, "time")
    if run.end:
        return ": ".join(str(run.end[key]) for key in ("status", "reason") if run.end.get(key))
    if run.metrics_file == "":
        return f"started {duration(now - began)} ago; steps are unknown with --metrics_file none"
    if number(run.step, "step") == 0 or last < began:
        return f"starting ({duration(now - began)})"
    if now - last > max(SILENT_SECONDS, SILENT_STEPS * number(run.step, "step_seconds")):
        return f"no step for {duration(now - last)}"
    return "training"


def steps_of(run: RunView, width: int) -> list[str]:
    """Returns lines with the values of the newest step."""
    step, most, seconds = (number(run.step, "step"), number(run.start, "max_steps"), number(run.step, "step_seconds"))
    share = step / most if most > 0 else 0
    text = f"step {step:.0f} of {most:.0f} ({100 * share:.0f}%), {seconds:.3g} s each"
    if not run.end and most > step:
        text += f", {duration((most - step) * seconds)} left"
    room = max(10, width - len(text) - 4)
    loss = f"loss   {as_number(run.step.get('loss')):.4f}"
    loss += "".join(f"  {label} {value:.4f}" for label, value in run.validation.items())
    if run.validation:
        loss += f" (step {run.validation_step:.0f})"
    rates = f"lr     {number(run.step, 'lr'):.3g}  grad norm {as_number(run.step.get('grad_norm')):.3g}"
    rates += f"  {number(run.step, 'tokens_per_second'):.0f} tokens/s"
    if "mfu" in run.step:
        rates += f"  MFU {100 * run.step['mfu']:.1f}%"
    lines = [
        f"[{padded(bar(share, room), room)}] {text}",
        f"{loss}  {sparkline(run.losses, width - columns_of(loss) - 2)}",
        rates,
    ]
    parts = {name.split()[0]: number(run.step, key) for key, name in STEP_PARTS.items() if key in run.step}
    if (total := sum(parts.values())) > 0:
        lines.append("time    " + "  ".join(f"{name} {100 * value / total:.0f}%" for name, value in parts.items()))
    return lines


def ranks_of(run: RunView, width: int, most: int) -> list[str]:
    """Returns bars for all ranks or, if there are more than `most`, for the slowest ranks."""
    seconds = [value if math.isfinite(value) else 0 for value in run.rank_seconds]
    if not seconds or most == 0:
        return []
    order = list(range(len(seconds)))
    if len(order) > most:
        order = sorted(order, key=lambda rank: -seconds[rank])[: most - 1]
    longest, room, hosts = max(seconds), max(10, width - 44), run.hosts
    lines = []
    for rank in order:
        host = cut(hosts[rank], 18) if rank < len(hosts) else ""
        share = padded(bar(seconds[rank] / longest if longest > 0 else 0, room), room)
        lines.append(f"rank {rank:<5} {padded(host, 18)} {share} {1e3 * seconds[rank]:.1f} ms")
    if len(order) < len(seconds):
        lines.append(f"{len(seconds) - len(order)} faster ranks are not shown")
    return lines


def lines_of(node: NodeView) -> list[str]:
    if node.problem:
        return [f"{node.host}: {node.problem}"]
    values = [
        (node.cpu, 100, "  CPU {:.0f}%"),
        (node.memory_available, 1 / GIBIBYTE, "  {:.0f} GiB free"),
        (node.sent, 1e-9, "  sends {:.2f} GB/s"),
        (node.received, 1e-9, "  receives {:.2f} GB/s"),
    ]
    lines = [node.host + joined(values)]
    for index, gpu in sorted(node.gpus.items()):
        values = [
            (gpu.get("utilization_ratio"), 100, "  {:>3.0f}%"),
            (gpu.get("sm_clock_hertz"), 1e-6, "  {:>4.0f} MHz"),
            (gpu.get("power_watts"), 1, "  {:>4.0f} W"),
            (gpu.get("temperature_celsius"), 1, "  {:>3.0f} °C"),
        ]
        text = f"  GPU {index}" + joined(values)
        if "memory_used_bytes" in gpu and "memory_bytes" in gpu:
            text += f"  {gpu['memory_used_bytes'] / GIBIBYTE:.1f} of {gpu['memory_bytes'] / GIBIBYTE:.1f} GiB"
        lines.append(text + ("  throttled" if "throttled" in gpu else ""))
    return lines


def joined(values: list[tuple[float | None, float, str]]) -> str:
    return "".join(form.format(value * scale) for value, scale, form in values if value is not None)


def sparkline(values: list[float], width: int) -> str:
    """Draws values as bars ("▁▃█"). Averages adjacent values if there are more than `width`."""
    finite = [value for value in values if math.isfinite(value)]
    count = min(len(finite), max(0, width))
    means = []
    for i in range(count):
        stretch = finite[i * len(finite) // count : (i + 1) * len(finite) // count]
        means.append(sum(stretch) / len(stretch))
    least, most = min(means, default=0), max(means, default=0)
    heights = [(mean - least) / (most - least) if most > least else 0 for mean in means]
    return "".join(BARS[round(height * (len(BARS) - 1))] for height in heights)


def bar(share: float, width: int) -> str:
    """Returns a bar that fills `share` (0 to 1) of `width` columns."""
    eighths = round(min(max(share, 0), 1) * width * 8)
    return BARS[-1] * (eighths // 8) + EIGHTHS[eighths % 8]


def number(fields: dict, key: str) -> float:
    """Returns the value, or 0 if it is not a finite number."""
    value = as_number(fields.get(key))
    return value if math.isfinite(value) else 0


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def duration(seconds: float) -> str:
    if not seconds >= 9.95:
        return f"{max(0, seconds):.1f} s"
    whole = round(min(seconds, LONGEST_SECONDS))
    for size, name, below, small in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // below} {small}"
    return f"{whole} s"


def columns_of(text: str) -> int:
    """Returns the number of terminal columns: 2 per wide character, 0 per combining character."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.category(c) in ("Mn", "Me") for c in text)


def padded(text: str, width: int) -> str:
    return text + " " * (width - columns_of(text))


def cut(text: str, width: int) -> str:
    """Truncates the text to `width` columns and replaces unprintable characters with "?"."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: 4 * width])
    while columns_of(shown) > width:
        shown = shown[:-1]
    return shown
