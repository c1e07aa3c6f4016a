#include "app/top/run_frame.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>

#include "app/top/terminal_text.hpp"
#include "base/text/times.hpp"

namespace mpzero {
namespace {

constexpr std::array kBars = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
constexpr std::array kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
constexpr double kGiga = 1e9, kGibibyte = 1024.0 * 1024 * 1024;
// A run whose newest step is older than so many steps, and than so many seconds, is called silent.
constexpr double kSilentSteps = 10, kSilentSeconds = 30;

// A bar of `share` (0 to 1) of `width` columns, in eighths of a column.
std::string bar(double share, int width) {
  const double wanted = std::clamp(std::isfinite(share) ? share : 0, 0.0, 1.0) * width * 8;
  const int eighths = static_cast<int>(std::lround(wanted));
  std::string text;
  for (int i = 0; i < eighths / 8; ++i) text += kBars.back();
  return text + kEighths[static_cast<size_t>(eighths % 8)];
}

std::string padded(const std::string& text, int width) {
  return text + std::string(static_cast<size_t>(std::max(0, width - columns_of(text))), ' ');
}

std::string state_of(const RunView& run, double now) {
  if (!run.status.empty()) return run.reason.empty() ? run.status : run.status + ": " + run.reason;
  if (run.metrics_file == "") {
    return fmt::format("began {} ago; its steps are not known without --metrics_file", duration_text(now - run.began));
  }
  const double last = std::max(run.time, run.began);
  const double silence = now - last;
  if (run.step == 0 || run.time < run.began) return "starting for " + duration_text(now - run.began);
  if (silence > kSilentSeconds && silence > kSilentSteps * run.step_seconds)
    return "no step for " + duration_text(silence);
  return "training";
}

size_t hosts_of(const RunView& run) { return std::set<std::string>(run.hosts.begin(), run.hosts.end()).size(); }

std::string title(const RunView& run) {
  const size_t hosts = hosts_of(run);
  std::string text = fmt::format("{}  run {}", run.model, run.run);
  if (hosts > 0) {
    text += fmt::format("  {} {} on {} {}", run.hosts.size(), run.hosts.size() == 1 ? "rank" : "ranks", hosts,
                        hosts == 1 ? "host" : "hosts");
  }
  if (run.starts > 1) text += fmt::format("  start {}", run.starts);
  return text;
}

std::string progress(const RunView& run, int width) {
  const double share = run.max_steps > 0 ? static_cast<double>(run.step) / static_cast<double>(run.max_steps) : 0;
  std::string text =
      fmt::format("step {} of {} ({:.0f}%), {:.3g} s each", run.step, run.max_steps, 100 * share, run.step_seconds);
  if (run.status.empty() && run.max_steps > run.step) {
    text += ", " + duration_text(static_cast<double>(run.max_steps - run.step) * run.step_seconds) + " left";
  }
  const int room = std::max(10, width - columns_of(text) - 4);
  return fmt::format("[{}] {}", padded(bar(share, room), room), text);
}

std::string parts_of(const RunView& run) {
  const double total = std::accumulate(run.parts.begin(), run.parts.end(), 0.0,
                                       [](double sum, const auto& part) { return sum + part.second; });
  if (total <= 0) return "";
  std::string text = "time  ";
  for (const auto& [key, name] : {std::pair("forward", "forward"), std::pair("backward", "backward"),
                                  std::pair("exposed_communication", "communication"),
                                  std::pair("optimizer", "optimizer"), std::pair("data", "data")}) {
    const auto found = run.parts.find(key);
    if (found != run.parts.end()) text += fmt::format("  {} {:.0f}%", name, 100 * found->second / total);
  }
  return text;
}

std::vector<std::string> ranks_of(const RunView& run, int width, size_t most) {
  std::vector<size_t> order(run.rank_seconds.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (order.size() > most) {
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return run.rank_seconds[a] > run.rank_seconds[b]; });
  }
  if (order.empty() || most == 0) return {};
  const double longest = *std::max_element(run.rank_seconds.begin(), run.rank_seconds.end());
  const size_t shown = order.size() > most ? most - 1 : order.size();
  std::vector<std::string> lines;
  const int room = std::max(10, width - 44);
  for (size_t i = 0; i < shown; ++i) {
    const size_t rank = order[i];
    const std::string host = rank < run.hosts.size() ? run.hosts[rank] : "";
    const double seconds = run.rank_seconds[rank];
    lines.push_back(fmt::format("rank {:<5} {} {} {:.1f} ms", rank, padded(cut(host, 18), 18),
                                padded(bar(longest > 0 ? seconds / longest : 0, room), room), 1e3 * seconds));
  }
  if (shown < order.size()) lines.push_back(fmt::format("{} faster ranks are not shown", order.size() - shown));
  return lines;
}

std::string of_node(const NodeView& node) {
  std::string text = node.host;
  if (!node.problem.empty()) return text + ": " + node.problem;
  if (node.cpu) text += fmt::format("  CPU {:.0f}%", 100 * *node.cpu);
  if (node.memory_available) text += fmt::format("  {:.0f} GiB free", *node.memory_available / kGibibyte);
  if (node.sent) text += fmt::format("  sends {:.2f} GB/s", *node.sent / kGiga);
  if (node.received) text += fmt::format("  receives {:.2f} GB/s", *node.received / kGiga);
  return text;
}

std::string of_gpu(const GpuView& gpu) {
  std::string text = fmt::format("  GPU {}", gpu.index);
  if (gpu.utilization) text += fmt::format("  {:>3.0f}%", 100 * *gpu.utilization);
  if (gpu.clock_hertz) text += fmt::format("  {:>4.0f} MHz", *gpu.clock_hertz / 1e6);
  if (gpu.watts) text += fmt::format("  {:>4.0f} W", *gpu.watts);
  if (gpu.celsius) text += fmt::format("  {:>3.0f} °C", *gpu.celsius);
  if (gpu.memory_used && gpu.memory_total) {
    text += fmt::format("  {:.1f} of {:.1f} GiB", *gpu.memory_used / kGibibyte, *gpu.memory_total / kGibibyte);
  }
  return gpu.throttled ? text + "  throttled" : text;
}

// The lines, or as many as fit with one that counts the others.
void append(std::vector<std::string>& to, const std::vector<std::string>& lines, size_t most, const char* what) {
  if (lines.size() <= most) {
    to.insert(to.end(), lines.begin(), lines.end());
  } else if (most > 0) {
    to.insert(to.end(), lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(most - 1));
    to.push_back(fmt::format("{} more lines of {} are not shown", lines.size() - most + 1, what));
  }
}

// What the newest step says.
void append_steps(std::vector<std::string>& lines, const RunView& run, int width) {
  lines.push_back(progress(run, width));
  std::string loss = fmt::format("loss   {:.4f}", run.loss);
  for (const auto& [set, value] : run.validation) {
    loss += fmt::format("  {} {:.4f}", set.empty() ? "validation" : "validation " + set, value);
  }
  if (!run.validation.empty()) loss += fmt::format(" (step {})", run.validation_step);
  lines.push_back(fmt::format("{}  {}", loss, sparkline(run.losses, width - columns_of(loss) - 2)));
  std::string rates =
      fmt::format("lr     {:.3g}  grad norm {:.3g}  {:.0f} tokens/s", run.lr, run.grad_norm, run.tokens_per_second);
  if (run.mfu) rates += fmt::format("  MFU {:.1f}%", 100 * *run.mfu);
  lines.push_back(rates);
  if (const std::string parts = parts_of(run); !parts.empty()) lines.push_back(parts);
}

}  // namespace

std::string sparkline(const std::vector<double>& values, int width) {
  std::vector<double> finite;
  std::copy_if(values.begin(), values.end(), std::back_inserter(finite), [](double v) { return std::isfinite(v); });
  if (finite.empty() || width <= 0) return "";
  const size_t bars = std::min(finite.size(), static_cast<size_t>(width));
  std::vector<double> means;
  for (size_t i = 0; i < bars; ++i) {
    const auto begin = finite.begin() + static_cast<std::ptrdiff_t>(i * finite.size() / bars);
    const auto end = finite.begin() + static_cast<std::ptrdiff_t>((i + 1) * finite.size() / bars);
    means.push_back(std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin));
  }
  const auto [least, most] = std::minmax_element(means.begin(), means.end());
  const double range = *most - *least;
  std::string text;
  for (const double mean : means) {
    const double height = range > 0 ? (mean - *least) / range : 0;
    text += kBars[static_cast<size_t>(std::lround(height * (kBars.size() - 1)))];
  }
  return text;
}

std::vector<std::string> run_frame(const RunView& run, const std::vector<NodeView>& nodes, double now, int width,
                                   int rows) {
  std::vector<std::string> lines = {cut(title(run), width), cut(state_of(run, now), width)};
  if (run.metrics_file != "") {
    if (run.step == 0) return lines;
    append_steps(lines, run, width);
  }
  lines.push_back(run.checkpoint_step == 0
                      ? std::string("saved  no checkpoint in this start of the run")
                      : fmt::format("saved  step {}, {} ago, in {:.1f} s", run.checkpoint_step,
                                    duration_text(now - run.checkpoint_time), run.checkpoint_seconds));
  if (!run.warning.empty()) lines.push_back("warns  " + run.warning);
  const size_t room = static_cast<size_t>(std::max(0, rows - static_cast<int>(lines.size())));
  std::vector<std::string> of_nodes;
  for (const NodeView& node : nodes) {
    of_nodes.push_back(of_node(node));
    for (const GpuView& gpu : node.gpus) of_nodes.push_back(of_gpu(gpu));
  }
  const size_t for_ranks = of_nodes.empty() ? room : std::max(room / 2, room - std::min(room, of_nodes.size()));
  const std::vector<std::string> ranks = ranks_of(run, width, for_ranks);
  lines.insert(lines.end(), ranks.begin(), ranks.end());
  append(lines, of_nodes, room - ranks.size(), "nodes");
  lines.resize(std::min(lines.size(), static_cast<size_t>(std::max(1, rows))));
  for (std::string& line : lines) line = cut(line, width);
  return lines;
}

}  // namespace mpzero
