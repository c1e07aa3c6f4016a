#pragma once

#include <string>
#include <vector>

namespace mpzero {

// Turns this process into app/`name` of the tree that mpzero belongs to, in the tree's Python environment or, where
// there is none, by python3. The program needs Python 3.9 and its standard library alone. Throws UserError.
[[noreturn]] void become_python_program(const std::string& name, const std::vector<std::string>& arguments);

}  // namespace mpzero
