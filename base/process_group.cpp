#include "base/process_group.hpp"

#include <algorithm>
#include <exception>

#include "base/error.hpp"

namespace mpzero {
namespace {

// How the work went on one rank, as the others are told: 'o' for success; else 'u'ser error, 'd'amage or 'f'ailure, the
// errno, a blank and the message.
constexpr char kSuccess = 'o';
constexpr char kUserError = 'u';
constexpr char kDamage = 'd';
constexpr char kFailure = 'f';

std::string describe(char kind, const std::exception& error, int system_error) {
  return fmt::format("{}{} {}", kind, system_error, error.what());
}

std::string outcome_of(const std::function<void()>& work) {
  try {
    work();
    return {kSuccess};
  } catch (const Damaged& error) {
    return describe(kDamage, error, error.system_error());
  } catch (const UserError& error) {
    return describe(kUserError, error, error.system_error());
  } catch (const Error& error) {
    return describe(kFailure, error, error.system_error());
  } catch (const std::exception& error) {
    return describe(kFailure, error, 0);
  }
}

}  // namespace

void run_on_all_ranks(ProcessGroup& group, const std::function<void()>& work) {
  const std::vector<std::string> outcomes = group.all_gather(outcome_of(work));
  const auto failed = [](const std::string& outcome) { return outcome[0] != kSuccess; };
  const auto lowest = std::find_if(outcomes.begin(), outcomes.end(), failed);
  if (lowest == outcomes.end()) return;
  // Damage on one rank must not hide that another could not read at all.
  const auto undamaged = std::find_if(outcomes.begin(), outcomes.end(), [&](const std::string& outcome) {
    return failed(outcome) && outcome[0] != kDamage;
  });
  const auto first = undamaged != outcomes.end() ? undamaged : lowest;
  const bool unanimous =
      std::all_of(outcomes.begin(), outcomes.end(), [&](const std::string& o) { return o == *first; });
  const size_t blank = first->find(' ');
  const int system_error = std::stoi(first->substr(1, blank - 1));
  std::string message = first->substr(blank + 1);
  if (!unanimous) message = fmt::format("rank {}: {}", first - outcomes.begin(), message);
  switch ((*first)[0]) {
    case kDamage:
      throw Damaged(message, ErrorScope::kAllRanks, system_error);
    case kUserError:
      throw UserError(message, ErrorScope::kAllRanks, system_error);
    default:
      throw Failure(message, ErrorScope::kAllRanks, system_error);
  }
}

}  // namespace mpzero
