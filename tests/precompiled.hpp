// Headers that most tests include, directly or through others. c10's define a CHECK, too.
#pragma once

#include "tests/catch.hpp"
#pragma push_macro("CHECK")
#include "cmake/precompiled.hpp"
#pragma pop_macro("CHECK")
