// Headers that most tests include, directly or indirectly. c10's headers also define CHECK.
#pragma once

#include "tests/catch.hpp"
#pragma push_macro("CHECK")
#include "cmake/precompiled.hpp"
#pragma pop_macro("CHECK")
