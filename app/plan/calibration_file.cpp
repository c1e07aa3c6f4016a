#include "app/plan/calibration_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "io/files/atomic_file.hpp"

namespace mpzero::plan {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;

constexpr int64_t kVersion = 1;
constexpr const char* kRemedy = "fix the file, or recreate it with `mpzero plan --calibrate`";

// Plausible range of a number in the file, in the file's unit. Values out of range would make sums and fits numerically
// meaningless.
struct Quantity {
  double least, most, unit = 1;
  int decimals = 3;  // when writing
};
constexpr Quantity kSeconds{1e-3, 1e9, 1e-6}, kBytesPerSecond{1e-3, 1e6, 1e9}, kParametersPerSecond{1, 1e15, 1, 0};
constexpr Quantity kBytes{1, 1e15, 1, 0}, kFactor{1e-3, 1e3}, kErrorShare{1e-6, 0.999}, kSize{1, 1e15, 1, 0},
    kCount{1, 1 << 20, 1, 0};

// A missing kOptional key leaves its member unchanged, and an optional number may be 0.
enum Need : uint8_t { kRequired, kOptional };

// Rejects control characters, because plans print strings from the file to a terminal.
bool is_text(const json& value) {
  return value.is_string() && !value.get_ref<const std::string&>().empty() &&
         std::ranges::none_of(value.get_ref<const std::string&>(),
                              [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// A JSON object of the file. The functions read or write one key and its member, so reading and writing share a list of
// keys. Reading throws UserError for a missing key or an invalid value.
class Fields {
 public:
  Fields(json& object, bool reads, std::string file, std::string place = "")
      : object_(object), reads_(reads), file_(std::move(file)), place_(std::move(place)) {
    if (!object.is_object()) {
      throw_user_error("{}: {} must be an object; {}", file_, place_.empty() ? "the file" : place_, kRemedy);
    }
  }

  bool reads() const { return reads_; }
  bool has(const char* key) const { return object_.contains(key); }

  void number(const char* key, double& value, const Quantity& quantity, Need need = kRequired) {
    const double scale = std::pow(10, quantity.decimals), shown = std::round(value / quantity.unit * scale) / scale;
    const json* const given = find(key, quantity.decimals > 0 ? json(shown) : json(std::llround(shown)), need);
    if (given == nullptr || !reads_) return;
    value = given->is_number() ? given->get<double>() : 0;
    if (need == kOptional && *given == 0) return;
    if (!(value > 0) || !std::isfinite(value)) wrong(key, "a number above 0");
    if (value < quantity.least || value > quantity.most) {
      wrong(key, fmt::format("from {:g} to {:g}", quantity.least, quantity.most));
    }
    value *= quantity.unit;
  }
  template <typename Int>
  void integer(const char* key, Int& value, const Quantity& quantity, Need need = kRequired) {
    auto number = static_cast<double>(value);
    this->number(key, number, quantity, need);
    if (number != std::floor(number)) wrong(key, "an integer above 0");
    value = static_cast<Int>(number);
  }
  void boolean(const char* key, bool& value, Need need = kRequired) {
    exchange(key, value, &json::is_boolean, "true or false", need);
  }
  void text(const char* key, std::string& value, Need need = kRequired) {
    exchange(key, value, is_text, "a printable string", need);
  }
  void texts(const char* key, std::vector<std::string>& values) {
    const auto are_texts = [](const json& all) { return all.is_array() && std::ranges::all_of(all, is_text); };
    exchange(key, values, are_texts, "a list of printable strings", kOptional);
  }
  void one_of(const char* key, std::string& value, const std::vector<std::string>& choices) {
    text(key, value);
    if (std::ranges::find(choices, value) != choices.end()) return;
    wrong(key, fmt::format("one of {}", fmt::join(choices, ", ")));
  }
  // Returns the index of the choice. `chosen`: its index when writing.
  size_t choice(const char* key, size_t chosen, const std::vector<std::string>& choices) {
    std::string name = choices[chosen];
    one_of(key, name, choices);
    return static_cast<size_t>(std::ranges::find(choices, name) - choices.begin());
  }
  void type(const char* key, at::ScalarType& value) {
    value = choice(key, value == at::kBFloat16 ? 0 : 1, {"bf16", "fp32"}) == 0 ? at::kBFloat16 : at::kFloat;
  }
  void texts_by_name(const char* key, std::map<std::string, std::string>& values) {
    const auto are_texts = [](const json& all) { return all.is_object() && std::ranges::all_of(all, is_text); };
    exchange(key, values, are_texts, "an object of printable strings", kOptional);
  }
  template <typename Visit>
  void section(const char* key, const Visit& visit, Need need = kOptional) {
    if (json* const given = find(key, json::object(), need)) visit_object(*given, path_of(key), visit);
  }
  // A list of objects. `empty`: their initial value.
  template <typename T, typename Visit>
  void list(const char* key, std::vector<T>& items, Need need, const Visit& visit, const T& empty = {}) {
    json* const given = find(key, json(items.size(), json::object()), need);
    if (given == nullptr) return;
    if (!given->is_array()) wrong(key, "a list");
    if (reads_) items.assign(given->size(), empty);
    for (size_t i = 0; i < items.size(); ++i) {
      visit_object((*given)[i], fmt::format("{}[{}]", path_of(key), i), [&](Fields& item) { visit(item, items[i]); });
    }
  }

  // Throws UserError for keys that were not read.
  void check_unknown() const {
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key)) throw_user_error("{}: unknown key {}; {}", file_, path_of(key), kRemedy);
    }
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& expected) const {
    throw_user_error("{}: {} must be {}; {}", file_, path_of(key), expected, kRemedy);
  }

 private:
  // Writes `shown`, or finds the key. Returns its value; null if an optional key is missing.
  json* find(const char* key, const json& shown, Need need) {
    known_.insert(key);
    if (!reads_) return &(object_[key] = shown);
    if (has(key)) return &object_[key];
    if (need == kOptional) return nullptr;
    throw_user_error("{}: the key {} is missing; {}", file_, path_of(key), kRemedy);
  }
  template <typename T, typename IsValid>
  void exchange(const char* key, T& value, const IsValid& is_valid, const char* expected, Need need) {
    const json* const given = find(key, value, need);
    if (given == nullptr || !reads_) return;
    if (!std::invoke(is_valid, *given)) wrong(key, expected);
    value = given->template get<T>();
  }
  template <typename Visit>
  void visit_object(json& object, const std::string& place, const Visit& visit) {
    Fields fields(object, reads_, file_, place);
    visit(fields);
    fields.check_unknown();
  }
  std::string path_of(const std::string& key) const { return place_.empty() ? key : place_ + "." + key; }

  json& object_;
  const bool reads_;
  std::string file_, place_;
  std::set<std::string> known_;
};

void visit_matmul(Fields& fields, CalibrationData::Matmul& matmul) {
  model::MatmulShape& shape = matmul.shape;
  fields.integer("rows", shape.rows, kSize);
  fields.integer("columns", shape.columns, kSize);
  fields.integer("inner", shape.inner, kSize);
  if (shape.fp8) {  // the second operand is e4m3
    const bool is_e5m2 = fields.choice("type", shape.type == at::kFloat8_e5m2 ? 1 : 0, {"e4m3", "e5m2"}) == 1;
    shape.type = is_e5m2 ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn;
    shape.fp8->rowwise = fields.choice("scaling", shape.fp8->rowwise ? 1 : 0, {"tensorwise", "rowwise"}) == 1;
    fields.boolean("fast", shape.fp8->fast_accumulation);
  } else {
    const size_t now = shape.a_transposed ? 2 : shape.b_transposed ? 1 : 0;
    const size_t layout = fields.choice("layout", now, {"NN", "NT", "TN"});
    shape.a_transposed = layout == 2;
    shape.b_transposed = layout == 1;
    fields.type("type", shape.type);
  }
  fields.type("out", shape.out_type);
  const size_t adds = fields.choice("adds", matmul.adds ? 2 : shape.bias ? 1 : 0, {"nothing", "bias", "matrix"});
  shape.bias = adds == 1;
  matmul.adds = adds == 2;
  fields.number("us", matmul.seconds, kSeconds);
}

void visit_attention(Fields& fields, CalibrationData::Attention& attention) {
  model::AttentionShape& shape = attention.shape;
  fields.integer("batch", shape.batch, kSize);
  fields.integer("length", shape.length, kSize);
  fields.integer("heads", shape.heads, kSize);
  fields.integer("key_value_heads", shape.key_value_heads, kSize);
  fields.integer("head_dim", shape.head_dim, kSize);
  fields.type("type", attention.type);
  fields.number("forward_us", attention.forward_seconds, kSeconds);
  fields.number("backward_us", attention.backward_seconds, kSeconds);
}

void visit_host_and_links(Fields& fields, CalibrationData& data) {
  fields.section("copies", [&](Fields& copies) {
    copies.number("to_device_gb_per_second", data.copies.to_device, kBytesPerSecond, kOptional);
    copies.number("from_device_gb_per_second", data.copies.from_device, kBytesPerSecond, kOptional);
    copies.number("both_ways_gb_per_second", data.copies.both_ways, kBytesPerSecond, kOptional);
    copies.number("on_device_gb_per_second", data.copies.on_device, kBytesPerSecond, kOptional);
  });
  fields.section("host", [&](Fields& host) {
    host.number("adamw_parameters_per_second", data.host.adamw_parameters_per_second, kParametersPerSecond, kOptional);
    host.integer("threads", data.host.threads, kCount, kOptional);
    host.integer("ranks", data.host.ranks, kCount, kOptional);
    host.number("memory_gb_per_second", data.host.memory_bytes_per_second, kBytesPerSecond, kOptional);
    host.number("disk_write_gb_per_second", data.host.disk_write_bytes_per_second, kBytesPerSecond, kOptional);
  });
  fields.number("launch_us", data.launch_seconds, kSeconds, kOptional);
  fields.list("full_step", data.full_step, kOptional, [](Fields& one, CalibrationData::FullStep& point) {
    one.number("layer_us", point.layer_seconds, kSeconds);
    one.number("factor", point.factor, kFactor);
  });
}

// Visits the keys of all files.
void visit_origin(Fields& fields, CalibrationData& data) {
  int64_t version = kVersion;
  fields.integer("format_version", version, kSize);
  if (version != kVersion) fields.wrong("format_version", fmt::format("{}, not {}", kVersion, version));
  fields.text("device", data.device);
  if (fields.reads()) data.names = {data.device};
  fields.texts("names", data.names);
  fields.text("source", data.source);
  fields.text("date", data.date, kOptional);
  fields.texts_by_name("versions", data.versions);
  fields.number("error", data.error, kErrorShare);
}

// Visits the keys of files with measured times.
void visit_measured(Fields& fields, CalibrationData& data) {
  using Data = CalibrationData;
  std::vector<Data::Matmul> matmuls, fp8_matmuls;
  std::vector<std::pair<std::string, Data::Kernel>> kernels;
  for (const Data::Matmul& matmul : data.matmuls) (matmul.shape.fp8 ? fp8_matmuls : matmuls).push_back(matmul);
  for (const auto& [name, times] : data.kernels) {
    for (const Data::Kernel& kernel : times) kernels.emplace_back(name, kernel);
  }
  visit_origin(fields, data);
  fields.boolean("gpu", data.gpu, kOptional);
  fields.list("matmuls", matmuls, kRequired, visit_matmul);
  const Data::Matmul fp8{.shape = {.b_transposed = true, .fp8 = model::Fp8Shape{}}};
  if (fields.reads() || !fp8_matmuls.empty()) fields.list("fp8_matmuls", fp8_matmuls, kOptional, visit_matmul, fp8);
  fields.list("attention", data.attention, kRequired, visit_attention);
  fields.list("kernels", kernels, kRequired, [](Fields& one, std::pair<std::string, Data::Kernel>& kernel) {
    one.text("kernel", kernel.first);
    one.type("type", kernel.second.type);
    one.number("bytes", kernel.second.bytes, kBytes);
    one.number("us", kernel.second.seconds, kSeconds);
  });
  // Only for ranks on CPUs; a file that scales another file describes a GPU.
  fields.list("collectives", data.collectives, kOptional, [](Fields& one, measure::CollectiveTime& collective) {
    one.one_of("collective", collective.name, {"all-gather", "reduce-scatter", "all-reduce"});
    one.type("type", collective.type);
    one.number("bytes", collective.bytes, kBytes);
    one.number("us", collective.seconds, kSeconds);
  });
  visit_host_and_links(fields, data);
  data.matmuls = std::move(matmuls);
  data.matmuls.insert(data.matmuls.end(), fp8_matmuls.begin(), fp8_matmuls.end());
  data.kernels.clear();
  for (const auto& [name, kernel] : kernels) data.kernels[name].push_back(kernel);
}

// Returns null if the file scales another file. Caches parsed files, because a comparison reads files for every host
// type.
const CalibrationData* measured_in(const std::string& text, const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, CalibrationData> known;
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(text); found != known.end()) return &found->second;
  json parsed = parse_user_json(text, name, kConfigurationLimits);
  Fields file(parsed, /*reads=*/true, name);
  if (file.has("scales")) return nullptr;
  CalibrationData data;
  visit_measured(file, data);
  file.check_unknown();
  return &known.emplace(text, std::move(data)).first->second;
}

// Reads a file that scales the rates of another file, for a GPU that was not measured.
CalibrationData read_scaled(Fields& file, const fs::path& path) {
  std::string base;
  file.text("scales", base);
  if (fs::path(base).filename() != base || base == path.filename()) file.wrong("scales", "another file in this folder");
  const std::optional<std::string> text = read_json_text(path.parent_path() / base, kConfigurationLimits);
  if (!text) file.wrong("scales", "a file in this folder");
  const CalibrationData* const measured = measured_in(*text, (path.parent_path() / base).string());
  if (measured == nullptr) file.wrong("scales", "a file with measured times");
  CalibrationData data = *measured;
  data.date.clear();
  data.versions.clear();
  visit_origin(file, data);
  // Time of the smallest kernel, which does not scale with the rates.
  double launch = 0, matmuls = 1, attention = 1, memory = 1;
  file.section(
      "rates",
      [&](Fields& rates) {
        rates.number("matmuls", matmuls, kFactor);
        rates.number("attention", attention, kFactor);
        rates.number("memory", memory, kFactor);
        rates.number("launch_us", launch, kSeconds);
      },
      kRequired);
  const auto scale = [&](double& seconds, double rate) {
    seconds = seconds > launch ? launch + (seconds - launch) / rate : seconds;
  };
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
  visit_host_and_links(file, data);
  file.check_unknown();
  if (data.copies.on_device <= 0) data.copies.on_device = on_device;
  return data;
}

}  // namespace

CalibrationData read_calibration(const fs::path& path) {
  const std::optional<std::string> text = read_json_text(path, kConfigurationLimits);
  if (!text) throw_user_error("{}: the calibration cannot be read; check the path and its permissions", path.string());
  if (const CalibrationData* const measured = measured_in(*text, path.string())) return *measured;
  json parsed = parse_user_json(*text, path.string(), kConfigurationLimits);
  Fields file(parsed, /*reads=*/true, path.string());
  return read_scaled(file, path);
}

std::string to_json(const CalibrationData& data) {
  CalibrationData written = data;
  if (data.date.empty()) written.date = "unknown";
  written.host.threads = std::max(1, data.host.threads);
  written.host.ranks = std::max(1, data.host.ranks);
  json file = json::object();
  Fields fields(file, /*reads=*/false, "");
  visit_measured(fields, written);
  // One key per line; in lists of objects, one object per line.
  std::string text;
  for (const auto& [key, value] : file.items()) {
    std::string shown = value.dump();
    if (value.is_array() && !value.empty() && value[0].is_object()) {
      shown.clear();
      for (const json& item : value) shown += (shown.empty() ? "[\n    " : ",\n    ") + item.dump();
      shown += "\n  ]";
    }
    text += fmt::format("{}\n  \"{}\": {}", text.empty() ? "{" : ",", key, shown);
  }
  return text + "\n}\n";
}

void write_calibration(const fs::path& path, const CalibrationData& data) {
  io::replace_text_file(path, to_json(data));
}

}  // namespace mpzero::plan
