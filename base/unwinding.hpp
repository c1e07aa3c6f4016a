#pragma once

#include <exception>

namespace mpzero::parallel {

// Tells a destructor whether an exception that propagates to the caller destroys the object. now() is false for objects
// created and destroyed within such a destructor.
class Unwinding {
 public:
  bool now() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace mpzero::parallel
