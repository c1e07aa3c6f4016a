#include "app/plan/calibration_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::plan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr double kMicro = 1e-6, kGiga = 1e9;
constexpr const char* kRemedy = "fix the file, or recreate it with `mpzero plan --calibrate`";

// Plausible ranges of times, rates and factors. Values out of range would make sums and fits numerically meaningless.
struct Bounds {
  double least, most;
};
constexpr Bounds kMicroseconds{1e-3, 1e9}, kGigabytes{1e-3, 1e6}, kParametersPerSecond{1, 1e15}, kBytes{1, 1e15};
constexpr Bounds kFactor{1e-3, 1e3};

// Rejects control characters, because plans print strings from the file to a terminal.
bool is_text(const std::string& text) {
  return !text.empty() && std::ranges::none_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// A JSON object in the file. Accessors throw UserError for a missing key or a wrong type.
class Fields {
 public:
  Fields(const json& object, std::string file, std::string place)
      : object_(&object), file_(std::move(file)), place_(std::move(place)) {
    if (!object.is_object()) throw_user_error("{}: {} must be an object; {}", file_, shown(place_), kRemedy);
  }

  bool has(const char* key) const { return object_->contains(key); }
  double positive(const char* key) const {
    const json& value = at(key);
    const double number = value.is_number() ? value.get<double>() : 0;
    if (!(number > 0) || !std::isfinite(number)) wrong(key, "a number above 0");
    return number;
  }
  double within(const char* key, const Bounds& bounds) const {
    const double number = positive(key);
    if (number < bounds.least || number > bounds.most) {
      wrong(key, fmt::format("from {:g} to {:g}", bounds.least, bounds.most));
    }
    return number;
  }
  double within_or_zero(const char* key, const Bounds& bounds) const {
    return !has(key) || at(key) == 0 ? 0 : within(key, bounds);
  }
  double seconds(const char* key) const { return kMicro * within(key, kMicroseconds); }
  double bytes_per_second(const char* key) const { return kGiga * within_or_zero(key, kGigabytes); }
  int64_t size(const char* key) const {
    const double number = positive(key);
    if (number != std::floor(number) || number > 1e15) wrong(key, "an integer above 0");
    return static_cast<int64_t>(number);
  }
  int count(const char* key) const { return static_cast<int>(std::min<int64_t>(size(key), 1 << 20)); }
  std::string text(const char* key) const {
    const json& value = at(key);
    if (!value.is_string() || !is_text(value.get_ref<const std::string&>())) wrong(key, "a printable string");
    return value.get<std::string>();
  }
  std::string text_or(const char* key, const char* fallback) const { return has(key) ? text(key) : fallback; }
  std::string one_of(const char* key, std::initializer_list<const char*> choices) const {
    std::string given = text(key);
    if (std::find(choices.begin(), choices.end(), given) == choices.end()) {
      wrong(key, fmt::format("one of {}", fmt::join(choices, ", ")));
    }
    return given;
  }
  at::ScalarType type(const char* key) const {
    return one_of(key, {"bf16", "fp32"}) == "bf16" ? at::kBFloat16 : at::kFloat;
  }
  bool boolean(const char* key) const {
    if (!at(key).is_boolean()) wrong(key, "true or false");
    return at(key).get<bool>();
  }
  Fields section(const char* key) const { return {at(key), file_, path_of(key)}; }
  // Returns the objects of a list.
  std::vector<Fields> list(const char* key) const {
    if (!at(key).is_array()) wrong(key, "a list");
    std::vector<Fields> all;
    for (const json& item : at(key)) all.emplace_back(item, file_, fmt::format("{}[{}]", path_of(key), all.size()));
    return all;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> all;
    if (!at(key).is_array()) wrong(key, "a list of printable strings");
    for (const json& item : at(key)) {
      if (!item.is_string() || !is_text(item.get_ref<const std::string&>())) wrong(key, "a list of printable strings");
      all.push_back(item.get<std::string>());
    }
    return all;
  }
  const json& object() const { return *object_; }
  // Throws UserError for keys that are not in `known`.
  void only(std::initializer_list<const char*> known) const {
    for (const auto& [key, value] : object_->items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        throw_user_error("{}: unknown key {}; {}", file_, path_of(key), kRemedy);
      }
    }
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& expected) const {
    throw_user_error("{}: {} must be {}; {}", file_, path_of(key), expected, kRemedy);
  }

 private:
  const json& at(const char* key) const {
    const auto found = object_->find(key);
    if (found == object_->end()) throw_user_error("{}: the key {} is missing; {}", file_, path_of(key), kRemedy);
    return *found;
  }
  std::string path_of(const std::string& key) const { return place_.empty() ? key : place_ + "." + key; }
  static std::string shown(const std::string& place) { return place.empty() ? "the file" : place; }

  const json* object_;
  std::string file_, place_;
};

CalibrationData::Matmul read_matmul(const Fields& fields) {
  fields.only({"rows", "columns", "inner", "layout", "type", "out", "adds", "us"});
  const std::string layout = fields.one_of("layout", {"NN", "NT", "TN"});
  const std::string adds = fields.one_of("adds", {"nothing", "bias", "matrix"});
  return {.shape = {.rows = fields.size("rows"),
                    .columns = fields.size("columns"),
                    .inner = fields.size("inner"),
                    .a_transposed = layout == "TN",
                    .b_transposed = layout == "NT",
                    .type = fields.type("type"),
                    .bias = adds == "bias",
                    .out_type = fields.type("out")},
          .adds = adds == "matrix",
          .seconds = fields.seconds("us")};
}

// Reads an FP8 matmul, whose second operand is e4m3.
CalibrationData::Matmul read_fp8_matmul(const Fields& fields) {
  fields.only({"rows", "columns", "inner", "type", "scaling", "fast", "out", "adds", "us"});
  const std::string adds = fields.one_of("adds", {"nothing", "bias", "matrix"});
  const bool is_e4m3 = fields.one_of("type", {"e4m3", "e5m2"}) == "e4m3";
  return {.shape = {.rows = fields.size("rows"),
                    .columns = fields.size("columns"),
                    .inner = fields.size("inner"),
                    .a_transposed = false,
                    .b_transposed = true,
                    .type = is_e4m3 ? at::kFloat8_e4m3fn : at::kFloat8_e5m2,
                    .bias = adds == "bias",
                    .out_type = fields.type("out"),
                    .fp8 = model::Fp8Shape{.rowwise = fields.one_of("scaling", {"tensorwise", "rowwise"}) == "rowwise",
                                           .fast_accumulation = fields.boolean("fast")}},
          .adds = adds == "matrix",
          .seconds = fields.seconds("us")};
}

CalibrationData::Attention read_attention(const Fields& fields) {
  fields.only({"batch", "length", "heads", "key_value_heads", "head_dim", "type", "forward_us", "backward_us"});
  return {.shape = {.batch = fields.size("batch"),
                    .length = fields.size("length"),
                    .heads = fields.size("heads"),
                    .key_value_heads = fields.size("key_value_heads"),
                    .head_dim = fields.size("head_dim")},
          .type = fields.type("type"),
          .forward_seconds = fields.seconds("forward_us"),
          .backward_seconds = fields.seconds("backward_us")};
}

void read_host_and_links(const Fields& file, CalibrationData& data) {
  if (file.has("copies")) {
    const Fields copies = file.section("copies");
    copies.only(
        {"to_device_gb_per_second", "from_device_gb_per_second", "both_ways_gb_per_second", "on_device_gb_per_second"});
    data.copies = {.to_device = copies.bytes_per_second("to_device_gb_per_second"),
                   .from_device = copies.bytes_per_second("from_device_gb_per_second"),
                   .both_ways = copies.bytes_per_second("both_ways_gb_per_second"),
                   .on_device = copies.bytes_per_second("on_device_gb_per_second")};
  }
  if (file.has("host")) {
    const Fields host = file.section("host");
    host.only({"adamw_parameters_per_second", "threads", "ranks", "memory_gb_per_second", "disk_write_gb_per_second"});
    data.host = {
        .adamw_parameters_per_second = host.within_or_zero("adamw_parameters_per_second", kParametersPerSecond),
        .threads = host.has("threads") ? host.count("threads") : 0,
        .ranks = host.has("ranks") ? host.count("ranks") : 1,
        .memory_bytes_per_second = host.bytes_per_second("memory_gb_per_second"),
        .disk_write_bytes_per_second = host.bytes_per_second("disk_write_gb_per_second")};
  }
  if (file.has("launch_us")) data.launch_seconds = kMicro * file.within_or_zero("launch_us", kMicroseconds);
  if (file.has("collectives")) {
    for (const Fields& collective : file.list("collectives")) {
      collective.only({"collective", "type", "bytes", "us"});
      data.collectives.push_back(
          {.name = collective.one_of("collective", {"all-gather", "reduce-scatter", "all-reduce"}),
           .type = collective.type("type"),
           .bytes = collective.within("bytes", kBytes),
           .seconds = collective.seconds("us")});
    }
  }
  if (file.has("full_step")) {
    data.full_step.clear();
    for (const Fields& point : file.list("full_step")) {
      point.only({"layer_us", "factor"});
      data.full_step.push_back({point.seconds("layer_us"), point.within("factor", kFactor)});
    }
  }
}

// Reads the keys common to all files.
void read_origin(const Fields& file, CalibrationData& data) {
  data.device = file.text("device");
  data.names = file.has("names") ? file.texts("names") : std::vector<std::string>{data.device};
  data.source = file.text("source");
  data.date = file.text_or("date", "");
  data.error = file.positive("error");
  if (data.error >= 1) file.wrong("error", "below 1");
  data.versions.clear();
  if (!file.has("versions")) return;
  const Fields versions = file.section("versions");
  for (const auto& [what, version] : versions.object().items()) data.versions[what] = versions.text(what.c_str());
}

CalibrationData read_measured(const Fields& file) {
  file.only({"format_version", "device", "gpu", "names", "source", "date", "versions", "error", "matmuls",
             "fp8_matmuls", "attention", "kernels", "copies", "host", "collectives", "launch_us", "full_step"});
  CalibrationData data;
  read_origin(file, data);
  if (file.has("gpu")) data.gpu = file.boolean("gpu");
  for (const Fields& matmul : file.list("matmuls")) data.matmuls.push_back(read_matmul(matmul));
  if (file.has("fp8_matmuls")) {
    for (const Fields& matmul : file.list("fp8_matmuls")) data.matmuls.push_back(read_fp8_matmul(matmul));
  }
  for (const Fields& attention : file.list("attention")) data.attention.push_back(read_attention(attention));
  for (const Fields& kernel : file.list("kernels")) {
    kernel.only({"kernel", "type", "bytes", "us"});
    data.kernels[kernel.text("kernel")].push_back(
        {.type = kernel.type("type"), .bytes = kernel.within("bytes", kBytes), .seconds = kernel.seconds("us")});
  }
  read_host_and_links(file, data);
  return data;
}

void check_version(const Fields& file, const std::string& name) {
  const int64_t version = file.size("format_version");
  if (version == kVersion) return;
  throw_user_error(
      "{}: format_version is {}, but this version of mpzero reads {}; recreate the file with `mpzero plan --calibrate`",
      name, version, kVersion);
}

// Returns null if the file scales another file. Caches parsed files, because a comparison reads files for every host
// type.
const CalibrationData* measured_in(const std::string& text, const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, CalibrationData> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(text); found != known.end()) return &found->second;
  const json parsed = parse_user_json(text, name, kConfigurationLimits);
  const Fields file(parsed, name, "");
  check_version(file, name);
  return file.has("scales") ? nullptr : &known.emplace(text, read_measured(file)).first->second;
}

// Reads a file that scales the rates of another file, for a GPU that was not measured.
CalibrationData read_scaled(const Fields& file, const fs::path& path) {
  file.only({"format_version", "scales", "device", "names", "source", "date", "versions", "error", "rates", "copies",
             "host", "launch_us", "full_step"});
  const std::string base = file.text("scales");
  if (fs::path(base).filename() != base || base == path.filename())
    file.wrong("scales", "a different file in this folder");
  const std::optional<std::string> text = read_json_text(path.parent_path() / base, kConfigurationLimits);
  if (!text) file.wrong("scales", "a file in this folder");
  const std::string base_name = (path.parent_path() / base).string();
  const CalibrationData* const measured = measured_in(*text, base_name);
  if (measured == nullptr) file.wrong("scales", "a file with measured times");
  CalibrationData data = *measured;
  read_origin(file, data);
  const Fields rates = file.section("rates");
  rates.only({"matmuls", "attention", "memory", "launch_us"});
  // Time of the smallest kernel, which does not scale with the rates.
  const double launch = rates.seconds("launch_us");
  const auto scale = [&](double& seconds, double rate) {
    seconds = seconds > launch ? launch + (seconds - launch) / rate : seconds;
  };
  const double matmuls = rates.within("matmuls", kFactor), attention = rates.within("attention", kFactor),
               memory = rates.within("memory", kFactor);
  for (CalibrationData::Matmul& m : data.matmuls) scale(m.seconds, matmuls);
  for (CalibrationData::Attention& a : data.attention) {
    scale(a.forward_seconds, attention);
    scale(a.backward_seconds, attention);
  }
  for (auto& [name, kernels] : data.kernels) {
    for (CalibrationData::Kernel& kernel : kernels) scale(kernel.seconds, memory);
  }
  data.copies = {.to_device = 0, .from_device = 0, .both_ways = 0, .on_device = data.copies.on_device * memory};
  data.host = {};
  data.collectives.clear();
  const double on_device = data.copies.on_device;
  read_host_and_links(file, data);
  if (data.copies.on_device <= 0) data.copies.on_device = on_device;
  return data;
}

const char* short_name(at::ScalarType type) { return type == at::kBFloat16 ? "bf16" : "fp32"; }

// Three decimals suffice for microseconds and GB/s.
double rounded(double value) { return std::round(value * 1000) / 1000; }

// Formats a list with one object per line.
std::string lines_of(const ordered_json& list) {
  std::string text = "[";
  for (size_t i = 0; i < list.size(); ++i) text += (i == 0 ? "\n    " : ",\n    ") + list[i].dump();
  return text + (list.empty() ? "]" : "\n  ]");
}

}  // namespace

CalibrationData read_calibration(const fs::path& path) {
  const std::optional<std::string> text = read_json_text(path, kConfigurationLimits);
  if (!text) throw_user_error("{}: the calibration cannot be read; check the path and its permissions", path.string());
  if (const CalibrationData* const measured = measured_in(*text, path.string())) return *measured;
  const json parsed = parse_user_json(*text, path.string(), kConfigurationLimits);
  return read_scaled(Fields(parsed, path.string(), ""), path);
}

std::string to_json(const CalibrationData& data) {
  ordered_json matmuls = ordered_json::array(), fp8_matmuls = matmuls, attention = matmuls, kernels = matmuls,
               full_step = matmuls, collectives = matmuls;
  for (const auto& [shape, adds, seconds] : data.matmuls) {
    const char* const added = adds ? "matrix" : shape.bias ? "bias" : "nothing";
    if (shape.fp8) {
      fp8_matmuls.push_back({{"rows", shape.rows},
                             {"columns", shape.columns},
                             {"inner", shape.inner},
                             {"type", shape.type == at::kFloat8_e4m3fn ? "e4m3" : "e5m2"},
                             {"scaling", shape.fp8->rowwise ? "rowwise" : "tensorwise"},
                             {"fast", shape.fp8->fast_accumulation},
                             {"out", short_name(shape.out_type)},
                             {"adds", added},
                             {"us", rounded(seconds / kMicro)}});
      continue;
    }
    const char* layout = shape.a_transposed ? "TN" : shape.b_transposed ? "NT" : "NN";
    matmuls.push_back({{"rows", shape.rows},
                       {"columns", shape.columns},
                       {"inner", shape.inner},
                       {"layout", layout},
                       {"type", short_name(shape.type)},
                       {"out", short_name(shape.out_type)},
                       {"adds", added},
                       {"us", rounded(seconds / kMicro)}});
  }
  for (const auto& [shape, type, forward, backward] : data.attention) {
    attention.push_back({{"batch", shape.batch},
                         {"length", shape.length},
                         {"heads", shape.heads},
                         {"key_value_heads", shape.key_value_heads},
                         {"head_dim", shape.head_dim},
                         {"type", short_name(type)},
                         {"forward_us", rounded(forward / kMicro)},
                         {"backward_us", rounded(backward / kMicro)}});
  }
  for (const auto& [name, times] : data.kernels) {
    for (const auto& [type, bytes, seconds] : times) {
      kernels.push_back({{"kernel", name},
                         {"type", short_name(type)},
                         {"bytes", static_cast<int64_t>(bytes)},
                         {"us", rounded(seconds / kMicro)}});
    }
  }
  for (const auto& [name, type, bytes, seconds] : data.collectives) {
    collectives.push_back({{"collective", name},
                           {"type", short_name(type)},
                           {"bytes", static_cast<int64_t>(bytes)},
                           {"us", rounded(seconds / kMicro)}});
  }
  for (const auto& [seconds, factor] : data.full_step) {
    full_step.push_back({{"layer_us", rounded(seconds / kMicro)}, {"factor", rounded(factor)}});
  }
  const auto& copies = data.copies;
  const auto& host = data.host;
  std::vector<std::pair<const char*, std::string>> parts{
      {"format_version", std::to_string(kVersion)},
      {"device", json(data.device).dump()},
      {"gpu", data.gpu ? "true" : "false"},
      {"names", json(data.names).dump()},
      {"source", json(data.source).dump()},
      {"date", json(data.date.empty() ? "unknown" : data.date).dump()},
      {"versions", json(data.versions).dump()},
      {"error", json(rounded(data.error)).dump()},
      {"matmuls", lines_of(matmuls)},
      {"attention", lines_of(attention)},
      {"kernels", lines_of(kernels)},
      {"copies", ordered_json{{"to_device_gb_per_second", rounded(copies.to_device / kGiga)},
                              {"from_device_gb_per_second", rounded(copies.from_device / kGiga)},
                              {"both_ways_gb_per_second", rounded(copies.both_ways / kGiga)},
                              {"on_device_gb_per_second", rounded(copies.on_device / kGiga)}}
                     .dump()},
      {"host", ordered_json{{"adamw_parameters_per_second", std::round(host.adamw_parameters_per_second)},
                            {"threads", std::max(1, host.threads)},
                            {"ranks", std::max(1, host.ranks)},
                            {"memory_gb_per_second", rounded(host.memory_bytes_per_second / kGiga)},
                            {"disk_write_gb_per_second", rounded(host.disk_write_bytes_per_second / kGiga)}}
                   .dump()},
      {"collectives", lines_of(collectives)},
      {"launch_us", json(rounded(data.launch_seconds / kMicro)).dump()},
      {"full_step", lines_of(full_step)}};
  if (!fp8_matmuls.empty()) parts.emplace_back("fp8_matmuls", lines_of(fp8_matmuls));
  std::string text = "{";
  for (size_t i = 0; i < parts.size(); ++i) {
    text += fmt::format("{}\n  \"{}\": {}", i == 0 ? "" : ",", parts[i].first, parts[i].second);
  }
  return text + "\n}\n";
}

void write_calibration(const fs::path& path, const CalibrationData& data) {
  io::replace_text_file(path, to_json(data));
}

}  // namespace mpzero::plan
