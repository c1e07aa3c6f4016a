#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/weight_source.hpp"
#include "io/weights/safetensors.hpp"

namespace mpzero::io {

// A file with weights. Thread-safe.
class WeightFile {
 public:
  virtual ~WeightFile() = default;

  virtual const std::filesystem::path& path() const = 0;
  const std::map<std::string, StoredTensor>& tensors() const { return tensors_; }
  // Reads elements [begin, begin + out.size()) of a tensor as fp32. element_bytes() must support its dtype.
  virtual void read(const std::string& name, int64_t begin, std::span<float> out) const = 0;

  // See TorchZipReader. Returns an empty list for formats without checksums.
  virtual std::vector<std::string> checksums_of_what_was_read() const { return {}; }
  virtual void verify(std::span<const std::string> /*lines*/) const {}

 protected:
  std::map<std::string, StoredTensor> tensors_;
};

// Opens a torch.save file if the name ends with ".bin", otherwise a safetensors file. Never executes code from a
// pickle. Throws UserError if the file is invalid.
std::unique_ptr<WeightFile> open_weight_file(const std::filesystem::path& path);

// The weights of a Hugging Face folder under the names in its files. Reads model.safetensors or its index and shards,
// or, if these do not exist, pytorch_model.bin or its index and shards. Supports F32, BF16 and F16. The constructor
// checks the headers against the file sizes and the index against the headers. Throws UserError if a tensor is missing
// or has a different shape. Thread-safe.
class FolderWeights final : public WeightSource {
 public:
  explicit FolderWeights(std::filesystem::path folder);
  ~FolderWeights() override;
  FolderWeights(FolderWeights&&) noexcept;

  bool contains(const std::string& name) const;
  // Returns all tensors, sorted by name.
  std::span<const ParameterSpec> parameters() const override;
  std::span<const std::string> warnings() const override;
  void check(const ParameterSpec& parameter) const override;
  const std::filesystem::path& file_of(const ParameterSpec& parameter) const override;
  // Values may be NaN or infinite.
  void read(const ParameterSpec& parameter, int64_t begin, std::span<float> out) const override;
  // Verifies the checksums of torch.save files; safetensors files have none.
  void verify_what_was_read(ProcessGroup& group) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns true if the folder contains safetensors weights or their index, or if a system error prevents the check.
bool has_safetensors(const std::filesystem::path& folder);
// Returns true if the folder contains weights in another format, including model.h5, which FolderWeights rejects.
bool has_other_weights(const std::filesystem::path& folder);

}  // namespace mpzero::io
