#pragma once

#ifdef MPZERO_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
namespace Catch {
using Matchers::Contains;
}
#endif
