#include "base/process_group.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <tuple>

#include "base/collectives.hpp"
#include "base/error.hpp"

namespace mpzero {
namespace {

enum class Kind : uint8_t { kSuccess, kUserError, kDamage, kFailure };

// Result of one rank: kind, errno and message.
using Outcome = std::tuple<Kind, int, std::string>;

Kind kind_of(const Outcome& outcome) { return std::get<Kind>(outcome); }

Outcome outcome_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const Damaged& error) {
    return {Kind::kDamage, error.system_error(), error.what()};
  } catch (const UserError& error) {
    return {Kind::kUserError, error.system_error(), error.what()};
  } catch (const Error& error) {
    return {Kind::kFailure, error.system_error(), error.what()};
  } catch (const std::exception& error) {
    return {Kind::kFailure, 0, error.what()};
  }
}

}  // namespace

void run_on_all_ranks(ProcessGroup& group, const std::function<void()>& work) {
  const std::vector<Outcome> outcomes = all_gather(group, outcome_of(work));
  const auto failed = [](const Outcome& outcome) { return kind_of(outcome) != Kind::kSuccess; };
  const auto lowest = std::find_if(outcomes.begin(), outcomes.end(), failed);
  if (lowest == outcomes.end()) return;
  // Damaged data on one rank must not hide a failed read on another rank.
  const auto undamaged = std::find_if(outcomes.begin(), outcomes.end(), [&](const Outcome& outcome) {
    return failed(outcome) && kind_of(outcome) != Kind::kDamage;
  });
  const auto first = undamaged != outcomes.end() ? undamaged : lowest;
  const bool unanimous = std::count(outcomes.begin(), outcomes.end(), *first) == std::ssize(outcomes);
  auto [kind, system_error, message] = *first;
  if (!unanimous) message = fmt::format("rank {}: {}", first - outcomes.begin(), message);
  switch (kind) {
    case Kind::kDamage:
      throw Damaged(message, ErrorScope::kAllRanks, system_error);
    case Kind::kUserError:
      throw UserError(message, ErrorScope::kAllRanks, system_error);
    default:
      throw Failure(message, ErrorScope::kAllRanks, system_error);
  }
}

}  // namespace mpzero
