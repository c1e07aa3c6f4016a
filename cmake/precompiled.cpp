// CMake wants a file in the library whose headers are precompiled.
