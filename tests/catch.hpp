#pragma once

#ifdef MPZERO_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
#include <string>
using Catch::Approx;
namespace Catch {
// As Catch2 2 calls them; Catch2 3 keeps the first name for ranges.
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
inline auto StartsWith(const std::string& text) { return Matchers::StartsWith(text); }
inline auto EndsWith(const std::string& text) { return Matchers::EndsWith(text); }
}  // namespace Catch
#endif
