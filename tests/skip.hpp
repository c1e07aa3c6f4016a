#pragma once

#include <string>

namespace mpzero {

// Exit status of a test program of which a case was skipped, which ctest then counts as skipped (SKIP_RETURN_CODE). The
// usual one; Catch2's own statuses are numbers of failures.
inline constexpr int kSkippedExitCode = 77;

// Says that this machine lacks what the running test case needs; the case must then return. A program counts as skipped
// once one of its cases is: cases that can be skipped have a ctest entry of their own (NEEDS in tests/CMakeLists.txt).
void skip_test(const std::string& what_is_missing);

}  // namespace mpzero
