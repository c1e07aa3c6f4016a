#pragma once

#ifdef MPZERO_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#include <string>
using Catch::Approx;
namespace Catch {
// Catch2 3 keeps this name for ranges.
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
}  // namespace Catch
#endif
