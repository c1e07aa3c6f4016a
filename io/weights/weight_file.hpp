#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/weights/safetensors_header.hpp"

namespace mpzero::io {

// One file of weights. Thread-safe.
class WeightFile {
 public:
  virtual ~WeightFile() = default;

  virtual const std::filesystem::path& path() const = 0;
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Elements [begin, begin + out.size()) of a tensor of the file, of a type with element_bytes().
  virtual void read(const std::string& name, int64_t begin, std::span<float> out) const = 0;

  // As those of TorchZipReader; a file without checksums has none.
  virtual std::vector<std::string> checksums_of_what_was_read() const { return {}; }
  virtual void verify(std::span<const std::string> /*lines*/) const {}

 protected:
  std::map<std::string, StoredTensor> tensors_;
};

// A file of torch.save if the name ends with ".bin", else safetensors. No code of a pickle is run. Throws UserError
// naming file and tensor.
std::unique_ptr<WeightFile> open_weight_file(const std::filesystem::path& path);

}  // namespace mpzero::io
