#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/parameter_source.hpp"
#include "base/parameter_spec.hpp"
#include "base/process_group.hpp"

namespace mpzero::io {

// Weights that a run can start from, under Hugging Face's names. Thread-safe.
class WeightSource : public ParameterSource {
 public:
  // All tensors.
  virtual std::vector<ParameterSpec> parameters() const = 0;
  // Warnings about the source, one sentence each.
  virtual std::span<const std::string> warnings() const = 0;
  // Throws UserError as read() does if the tensor cannot be read at all, without reading it.
  virtual void check(const ParameterSpec& parameter) const = 0;
  // The file that holds the parameter, or the folder if several files hold it. Throws as check() does.
  virtual const std::filesystem::path& file_of(const ParameterSpec& parameter) const = 0;
  // Collective: throws on every rank unless everything that any rank has read so far is intact and from one save.
  virtual void verify_what_was_read(ProcessGroup& /*group*/) const {}
};

}  // namespace mpzero::io
