#include "base/process_group.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <exception>
#include <tuple>

#include "base/collectives.hpp"
#include "base/error.hpp"
#include "base/rank_failure.hpp"

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

// Returns the failed ranks if all of their errors may be caused by their hosts; otherwise, returns an empty list. If
// rank 0 fails, other ranks may not have used the same resource.
std::vector<int> ranks_of_faulty_hosts(const std::vector<Outcome>& outcomes) {
  constexpr std::array kErrorsOfHosts = {EIO, ESTALE, ETIMEDOUT, ENODEV, EREMOTEIO, ENOTCONN, ESHUTDOWN, EHOSTDOWN};
  std::vector<int> ranks;
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const auto& [kind, system_error, message] = outcomes[rank];
    if (kind == Kind::kSuccess) continue;
    if (rank == 0 || kind != Kind::kFailure || !std::ranges::count(kErrorsOfHosts, system_error)) return {};
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
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
  const std::vector<int> culprits = ranks_of_faulty_hosts(outcomes);
  if (!culprits.empty()) throw RankFailure(message, ErrorScope::kAllRanks, culprits, system_error);
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
