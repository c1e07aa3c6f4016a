#include "base/process_group.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace mpzero {

void run_on_all_ranks(ProcessGroup& group, const std::function<void()>& work) {
  // The first character says how it went on this rank: 'o'k, 'u'ser error, 'f'ailure.
  std::string outcome = "o";
  try {
    work();
  } catch (const UserError& error) {
    outcome = std::string("u") + error.what();
  } catch (const std::exception& error) {
    outcome = std::string("f") + error.what();
  }
  const std::vector<std::string> outcomes = group.all_gather(outcome);
  const auto first = std::find_if(outcomes.begin(), outcomes.end(), [](const std::string& o) { return o[0] != 'o'; });
  if (first == outcomes.end()) return;
  const bool unanimous =
      std::all_of(outcomes.begin(), outcomes.end(), [&](const std::string& o) { return o == *first; });
  std::string message = first->substr(1);
  if (!unanimous) message = fmt::format("rank {}: {}", first - outcomes.begin(), message);
  if ((*first)[0] == 'u') throw UserError(message, ErrorScope::kAllRanks);
  throw Failure(message, ErrorScope::kAllRanks);
}

}  // namespace mpzero
