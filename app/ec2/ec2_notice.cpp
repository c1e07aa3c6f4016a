#include "app/ec2/ec2_notice.hpp"

#include <fmt/format.h>

#include <ctime>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/json.hpp"

namespace mpzero {
namespace {

using json = nlohmann::json;

constexpr JsonLimits kLimits{.bytes = 65536, .depth = 8};
constexpr size_t kLongestText = 64;

// Returns the value of `key`, a short string of printable ASCII characters.
std::string text_of(const json& object, const char* key) {
  const json value = object.is_object() && object.contains(key) ? object[key] : json();
  if (!value.is_string()) throw_failure("the response has no string field '{}'", key);
  const auto text = value.get<std::string>();
  bool plain = text.size() <= kLongestText;
  for (const char c : text) plain = plain && c >= ' ' && c <= '~';
  if (!plain) throw_failure("'{}' in the response is not a short ASCII string", key);
  return text;
}

// Parses a UTC time. `format`: see strptime(). Returns Unix time in seconds.
double time_of(const std::string& text, const char* format) {
  std::tm parts{};
  const char* end = strptime(text.c_str(), format, &parts);
  if (end == nullptr || *end != '\0') throw_failure("'{}' is not a time", text);
  return static_cast<double>(timegm(&parts));
}

constexpr const char* kIsoTime = "%Y-%m-%dT%H:%M:%SZ";
constexpr const char* kEventTime = "%d %b %Y %H:%M:%S GMT";

}  // namespace

Ec2Notice read_interruption(const std::string& text) {
  const json answer = parse_json(text, kLimits);
  Ec2Notice notice{
      .kind = Ec2Notice::Kind::kInterruption, .what = text_of(answer, "action"), .moment = text_of(answer, "time")};
  notice.at = time_of(notice.moment, kIsoTime);
  return notice;
}

Ec2Notice read_rebalance(const std::string& text) {
  Ec2Notice notice{.kind = Ec2Notice::Kind::kRebalance,
                   .what = "rebalance",
                   .moment = text_of(parse_json(text, kLimits), "noticeTime")};
  notice.at = time_of(notice.moment, kIsoTime);
  return notice;
}

Ec2Events read_events(const std::string& text) {
  const json answer = parse_json(text, kLimits);
  if (!answer.is_array()) throw_failure("the response is not a JSON array of events");
  Ec2Events events;
  for (const json& event : answer) {
    try {
      if (text_of(event, "State") != "active") continue;
      Ec2Notice notice{
          .kind = Ec2Notice::Kind::kEvent, .what = text_of(event, "Code"), .moment = text_of(event, "NotBefore")};
      notice.at = time_of(notice.moment, kEventTime);
      events.active.push_back(std::move(notice));
    } catch (const Failure& error) {
      events.unreadable.emplace_back(error.what());
    }
  }
  return events;
}

Ec2Response respond(const Ec2Notice& notice, double began, double now, double lead) {
  switch (notice.kind) {
    case Ec2Notice::Kind::kInterruption:
      return Ec2Response::kStop;
    case Ec2Notice::Kind::kRebalance:
      return notice.at >= began ? Ec2Response::kStop : Ec2Response::kWarn;
    case Ec2Notice::Kind::kEvent:
      return now >= notice.at - lead && began < notice.at - lead ? Ec2Response::kStop : Ec2Response::kWarn;
  }
  return Ec2Response::kWarn;
}

std::string describe(const Ec2Notice& notice, const std::string& instance) {
  const std::string name = instance.empty() ? "this instance" : "instance " + instance;
  switch (notice.kind) {
    case Ec2Notice::Kind::kInterruption:
      return fmt::format("EC2 spot interruption of {} at {} ({})", name, notice.moment, notice.what);
    case Ec2Notice::Kind::kRebalance:
      return fmt::format("EC2 rebalance recommendation for {} from {}", name, notice.moment);
    case Ec2Notice::Kind::kEvent:
      return fmt::format("EC2 scheduled event {} of {}, not before {}", notice.what, name, notice.moment);
  }
  return "";
}

}  // namespace mpzero
