#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/campaign.hpp"

namespace mpzero::faults {

// The number of outcomes of each kind, by target and kind of fault, in Markdown.
std::string table_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts);
// The faults with a bad outcome, at most `most` per target and kind, with their messages.
std::string list_of_bad(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts, size_t most);
// Both, and every fault with a bad outcome, as JSON.
std::string json_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts, uint64_t seed);
size_t count_bad(const std::vector<Verdict>& verdicts);

}  // namespace mpzero::faults
