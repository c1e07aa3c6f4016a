#include "app/exporter/families.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

namespace mpzero {
namespace {

// Replaces invalid UTF-8 with U+FFFD: the format requires UTF-8, but folder names may contain any bytes.
std::string as_utf8(const std::string& text) {
  using nlohmann::json;
  return json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace)).get<std::string>();
}

// Escapes a label value or a help text. Escaped quotation marks are valid in help texts as well.
std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : as_utf8(text)) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') result += '\\';
    result += c;
  }
  return result;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void DurationHistogram::add(double seconds) {
  ++counts_[std::lower_bound(std::begin(kBounds), std::end(kBounds), seconds) - std::begin(kBounds)];
  sum_ += seconds;
}

uint64_t DurationHistogram::count_up_to(size_t i) const {
  return std::accumulate(std::begin(counts_), std::begin(counts_) + static_cast<std::ptrdiff_t>(i) + 1, uint64_t{0});
}

void Families::gauge(const std::string& name, const std::string& help, double value, const MetricLabels& labels) {
  add(family(name, help, "gauge"), name, value, labels);
}

void Families::counter(const std::string& name, const std::string& help, double value, const MetricLabels& labels) {
  add(family(name, help, "counter"), name, value, labels);
}

void Families::histogram(const std::string& name, const std::string& help, const DurationHistogram& durations,
                         const MetricLabels& labels) {
  Family& to = family(name, help, "histogram");
  for (size_t i = 0; i <= std::size(DurationHistogram::kBounds); ++i) {
    const bool last = i == std::size(DurationHistogram::kBounds);
    MetricLabels with_bound = labels;
    with_bound.emplace_back("le", last ? "+Inf" : number(DurationHistogram::kBounds[i]));
    add(to, name + "_bucket", static_cast<double>(durations.count_up_to(i)), with_bound);
  }
  add(to, name + "_sum", durations.sum(), labels);
  add(to, name + "_count", static_cast<double>(durations.count()), labels);
}

std::string Families::text() const {
  std::string result;
  for (const Family& family : families_) result += family.head + family.samples;
  return result;
}

Families::Family& Families::family(const std::string& name, const std::string& help, const char* type) {
  const auto known = std::find_if(families_.begin(), families_.end(), [&](const Family& f) { return f.name == name; });
  if (known != families_.end()) return *known;
  const std::string head = fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, escaped(help), type);
  return families_.emplace_back(Family{name, head, ""});
}

void Families::add(Family& family, const std::string& name, double value, const MetricLabels& labels) {
  samples_.push_back({.name = name, .labels = labels, .value = value});
  std::string list;
  for (const MetricLabels* some : {&std::as_const(common_), &labels}) {
    for (const auto& [key, text] : *some)
      list += fmt::format("{}{}=\"{}\"", list.empty() ? "" : ",", key, escaped(text));
  }
  family.samples += name + (list.empty() ? list : "{" + list + "}") + " " + number(value) + "\n";
}

}  // namespace mpzero
