"use strict";
// Draws the charts over the selected axis, and redraws them when the color scheme changes.
const charts = JSON.parse(document.getElementById("charts").textContent);
const axis = document.getElementById("axis");
const dark = matchMedia("(prefers-color-scheme: dark)");

function colour(name) {
  const wrapped = name.replace(/^run-(\d+)$/, (_, place) => `run-${place % 8}`);
  return getComputedStyle(document.documentElement).getPropertyValue(`--${wrapped}`).trim();
}

// [[0, name], ..., [1, name]]
function scale(pairs) {
  return pairs.map(([at, name]) => [at, colour(name)]);
}

function coloured(value) {
  if (Array.isArray(value) || value === null || typeof value !== "object") return value;
  const copy = {};
  for (const [key, inner] of Object.entries(value)) {
    if (key === "color" || key === "fillcolor") copy[key] = colour(inner);
    else copy[key] = key === "colorscale" ? scale(inner) : coloured(inner);
  }
  return copy;
}

function trace(source) {
  const result = coloured(source);
  if (source.choices) result.x = source.choices[axis.value] || source.choices.step;
  delete result.choices;
  return result;
}

function layout(chart) {
  const rule = colour("rule");
  const lines = { gridcolor: rule, zerolinecolor: rule, linecolor: rule, automargin: true };
  const overSteps = chart.traces.some((source) => source.choices);
  return {
    margin: { l: 56, r: 12, t: 8, b: 40 },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("ink"), family: "system-ui, sans-serif", size: 12 },
    hovermode: overSteps ? "x unified" : "closest",
    hoverlabel: { bgcolor: colour("paper"), bordercolor: rule },
    legend: { orientation: "h", y: -0.3, x: 0, traceorder: "normal" },
    ...chart.layout,
    xaxis: { ...lines, ...(overSteps ? { title: { text: axis.value } } : {}), ...chart.layout.xaxis },
    yaxis: { ...lines, ...chart.layout.yaxis },
  };
}

function draw(plot) {
  const chart = charts[Number(plot.id.replace("plot-", ""))];
  Plotly.react(plot, chart.traces.map(trace), layout(chart), { responsive: true, displayModeBar: false });
}

// Draw each chart when it first becomes visible.
const drawn = new Set();
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (!entry.isIntersecting || drawn.has(entry.target)) continue;
    drawn.add(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "200px" });
document.querySelectorAll(".plot").forEach((plot) => observer.observe(plot));
axis.addEventListener("change", () => drawn.forEach(draw));
dark.addEventListener("change", () => drawn.forEach(draw));
