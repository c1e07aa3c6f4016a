#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/weights/folder_weights.hpp"

// read_safetensors DIR: every tensor in the folder as raw fp32 on stdout, by name. For the interop tests.
int main(int argc, char** argv) {
  try {
    if (argc != 2) throw std::invalid_argument("read_safetensors DIR");
    const mpzero::io::FolderWeights source(argv[1]);
    for (const mpzero::ParameterSpec& parameter : source.parameters()) {
      std::vector<float> values(static_cast<size_t>(parameter.numel()));
      source.read(parameter, 0, values);
      if (std::fwrite(values.data(), sizeof(float), values.size(), stdout) != values.size()) {
        throw std::runtime_error("cannot write to stdout");
      }
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
