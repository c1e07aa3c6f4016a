// Not #pragma once, which compares contents: ccache ignores comments and may return a precompiled header with an
// earlier version of this file.
#ifndef MPZERO_TESTS_CATCH_HPP
#define MPZERO_TESTS_CATCH_HPP

#include <map>
#include <set>
#include <string>
#include <vector>

#define CATCH_CONFIG_ENABLE_PAIR_STRINGMAKER
#ifdef MPZERO_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace Catch {
// Names from Catch2 2. Catch2 3 uses the name Contains for ranges.
inline auto Contains(const std::string& text) { return Matchers::ContainsSubstring(text); }
inline auto StartsWith(const std::string& text) { return Matchers::StartsWith(text); }
inline auto EndsWith(const std::string& text) { return Matchers::EndsWith(text); }
}  // namespace Catch
#endif

// c10's headers add operators to namespace std that print containers and do not compile for elements that cannot be
// printed. These overloads use Catch's own conversion of each element.
namespace Catch {
template <typename... Types>
struct StringMaker<std::vector<Types...>> {
  static std::string convert(const std::vector<Types...>& range) { return rangeToString(range); }
};
template <typename... Types>
struct StringMaker<std::map<Types...>> {
  static std::string convert(const std::map<Types...>& range) { return rangeToString(range); }
};
template <typename... Types>
struct StringMaker<std::set<Types...>> {
  static std::string convert(const std::set<Types...>& range) { return rangeToString(range); }
};
}  // namespace Catch

#endif
