#pragma once

#include <exception>

namespace mpzero::parallel {

// Detects in a destructor whether stack unwinding destroys the object. now() is false for objects that are created and
// destroyed during the unwinding of an enclosing scope.
class Unwinding {
 public:
  bool now() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace mpzero::parallel
