#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/campaign.hpp"

namespace mpzero::faults {

// Returns the number of outcomes of each kind, by target and kind of fault, as a Markdown table.
std::string table_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts);
// Returns the faults with a bad outcome, at most `most` per target and kind, with their messages.
std::string list_of_bad(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts, size_t most);
// Returns the table, and every fault with a bad outcome, as JSON.
std::string json_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts, uint64_t seed);
size_t count_bad(const std::vector<Verdict>& verdicts);

}  // namespace mpzero::faults
