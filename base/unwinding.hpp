#pragma once

#include <exception>

namespace mpzero::parallel {

// Detects whether a destructor runs because of stack unwinding. now() is false for objects that are created and
// destroyed during the unwinding of an enclosing scope.
class Unwinding {
 public:
  bool now() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace mpzero::parallel
