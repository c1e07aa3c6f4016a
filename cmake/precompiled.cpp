// CMake requires a source file in the target that precompiles headers.
