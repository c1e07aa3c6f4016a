#include <optional>
#include <stdexcept>

#include "base/unwinding.hpp"
#include "tests/catch.hpp"

namespace mpzero::parallel {
namespace {

// Records now() in its destructor.
class Witness {
 public:
  explicit Witness(std::optional<bool>& seen) : seen_(seen) {}
  ~Witness() { seen_ = unwinding_.now(); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

 private:
  Unwinding unwinding_;
  std::optional<bool>& seen_;
};

// Creates a witness in its destructor.
class Last {
 public:
  explicit Last(std::optional<bool>& seen) : seen_(seen) {}
  ~Last() { const Witness witness(seen_); }
  Last(const Last&) = delete;
  Last& operator=(const Last&) = delete;

 private:
  std::optional<bool>& seen_;
};

}  // namespace

TEST_CASE("an object detects that an exception destroys it") {
  std::optional<bool> seen;
  { const Witness witness(seen); }
  CHECK(seen == false);
  try {
    const Witness witness(seen);
    throw std::runtime_error("passing by");
  } catch (const std::runtime_error&) {
    CHECK(seen == true);
    const Witness witness(seen);  // the exception has arrived
  }
  CHECK(seen == false);
}

TEST_CASE("an object created and destroyed during unwinding does not count as unwound") {
  std::optional<bool> seen;
  try {
    const Last last(seen);
    throw std::runtime_error("passing by");
  } catch (const std::runtime_error&) {
    CHECK(seen == false);
  }
}

TEST_CASE("an object that outlives a caught exception is destroyed normally") {
  std::optional<bool> seen;
  {
    std::optional<Witness> kept;
    try {
      kept.emplace(seen);
      throw std::runtime_error("caught before the object is destroyed");
    } catch (const std::runtime_error&) {
      CHECK(!seen.has_value());
    }
  }
  CHECK(seen == false);
}

}  // namespace mpzero::parallel
