#pragma once

#include <string>

namespace mpzero {

// Exit status of a test program if a test case was skipped. ctest then counts the program as skipped
// (SKIP_RETURN_CODE). 77 is the conventional value; Catch2's own statuses are numbers of failures.
inline constexpr int kSkippedExitCode = 77;

// Reports that this machine lacks a requirement of the running test case, which must then return. A program counts as
// skipped once any of its test cases is skipped, so test cases that can be skipped have separate ctest entries (NEEDS
// in tests/CMakeLists.txt).
void skip_test(const std::string& what_is_missing);

}  // namespace mpzero
