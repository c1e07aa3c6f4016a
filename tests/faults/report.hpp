#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/faults/campaign.hpp"

namespace mpzero::faults {

// How often each outcome came, by target and kind, in Markdown.
std::string table_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts);
// The faults that ended badly, at most `most` of each target and kind, with what was said.
std::string list_of_bad(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts, size_t most);
// Both, and every fault that ended badly, as JSON.
std::string json_of(const std::vector<Fault>& faults, const std::vector<Verdict>& verdicts, uint64_t seed);
size_t count_bad(const std::vector<Verdict>& verdicts);

}  // namespace mpzero::faults
