#pragma once

#include <exception>

namespace mpzero::parallel {

// For a member of a class whose destructor must know whether an exception that propagates to the caller destroys the
// object. For an object that is created and destroyed within such a destructor, now() is false.
class Unwinding {
 public:
  bool now() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace mpzero::parallel
