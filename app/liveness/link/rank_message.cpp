#include "app/liveness/link/rank_message.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "base/json.hpp"

namespace mpzero::message {
namespace {

using nlohmann::json;

// The key of the message's name in a line.
constexpr const char* kName = "t";

// In the order of the alternatives of Any.
constexpr std::array<std::string_view, std::variant_size_v<Any>> kNames = {
    "status", "failed", "stop", "pulse", "ask", "end", "bye", "turned", "probed", "abandon", "beat", "visit"};

json fields(const Status& status) {
  json object = status.status;
  if (status.answers != 0) object["answers"] = status.answers;
  return object;
}
json fields(const Failed& failed) { return {{"error", failed.error}, {"culprits", failed.culprits}}; }
json fields(const Stop& stop) { return {{"code", stop.exit_code}, {"leaves_host", stop.leaves_host}}; }
json fields(const Pulse&) { return json::object(); }
json fields(const Ask& ask) { return {{"probe", ask.probe}, {"by", ask.by}, {"number", ask.number}}; }
json fields(const End& end) { return {{"code", end.exit_code}, {"kill", end.kill}}; }
json fields(const Bye& bye) { return {{"error", bye.with_error}}; }
json fields(const Turned& turned) { return {{"from", turned.from}}; }
json fields(const Probed& probed) { return {{"rank", probed.rank}, {"reach", static_cast<int>(probed.reach)}}; }
json fields(const Abandon&) { return json::object(); }
json fields(const Visit&) { return json::object(); }
json fields(const Beat& beat) {
  return {{"step", beat.step}, {"phase", static_cast<int>(beat.phase)}, {"idle", beat.idle}, {"allowed", beat.allowed}};
}

void read(const json& object, Status& status) {
  object.get_to(status.status);
  status.answers = object.value("answers", int64_t{0});
}
void read(const json& object, Failed& failed) {
  object.at("error").get_to(failed.error);
  object.at("culprits").get_to(failed.culprits);
}
void read(const json& object, Stop& stop) {
  object.at("code").get_to(stop.exit_code);
  object.at("leaves_host").get_to(stop.leaves_host);
}
void read(const json&, Pulse&) {}
void read(const json& object, Ask& ask) {
  object.at("probe").get_to(ask.probe);
  object.at("by").get_to(ask.by);
  object.at("number").get_to(ask.number);
}
void read(const json& object, End& end) {
  object.at("code").get_to(end.exit_code);
  object.at("kill").get_to(end.kill);
}
void read(const json& object, Bye& bye) { object.at("error").get_to(bye.with_error); }
void read(const json& object, Turned& turned) { object.at("from").get_to(turned.from); }
void read(const json& object, Probed& probed) {
  object.at("rank").get_to(probed.rank);
  probed.reach =
      static_cast<Reach>(std::clamp(object.at("reach").get<int>(), 0, static_cast<int>(Reach::kUnreachable)));
}
void read(const json&, Abandon&) {}
void read(const json&, Visit&) {}
void read(const json& object, Beat& beat) {
  object.at("step").get_to(beat.step);
  beat.phase = phase_of(object.at("phase").get<int>());
  object.at("idle").get_to(beat.idle);
  object.at("allowed").get_to(beat.allowed);
}

template <size_t kIndex = 0>
std::optional<Any> parse_named(std::string_view name, const json& object) {
  if constexpr (kIndex < kNames.size()) {
    if (name != kNames[kIndex]) return parse_named<kIndex + 1>(name, object);
    std::variant_alternative_t<kIndex, Any> message;
    read(object, message);
    return message;
  }
  return std::nullopt;
}

}  // namespace

std::string to_line(const Any& message) {
  json object = std::visit([](const auto& one) { return fields(one); }, message);
  object[kName] = kNames[message.index()];
  // An error's text may be in any encoding.
  return object.dump(-1, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
}

std::optional<Any> parse(const std::string& line) {
  try {
    const json object = parse_json(line, kLineLimits);
    return parse_named(object.at(kName).get_ref<const std::string&>(), object);
  } catch (const json::exception&) {
    return std::nullopt;
  } catch (const JsonError&) {
    return std::nullopt;
  }
}

}  // namespace mpzero::message
