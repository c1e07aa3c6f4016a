#pragma once

#include <exception>

namespace mpzero::parallel {

// For a member of a class whose destructor must know whether its object goes because an exception is on its way to
// somebody behind it. (An object that is made and goes within such a destructor is not in its way.)
class Unwinding {
 public:
  bool now() const { return std::uncaught_exceptions() > before_; }

 private:
  int before_ = std::uncaught_exceptions();
};

}  // namespace mpzero::parallel
