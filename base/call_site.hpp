#pragma once

namespace mpzero {

// Where a function is called, as the default of its last argument: `CallSite site = CallSite::here()`.
// std::source_location is missing where clang 14 compiles with the standard library of gcc 12 (Debian 12).
struct CallSite {
  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {.file = file, .line = line};
  }

  const char* file;
  int line;
};

}  // namespace mpzero
