#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/parameter_source.hpp"
#include "base/parameter_spec.hpp"
#include "base/process_group.hpp"

namespace mpzero {

// Initial weights of a run under Hugging Face parameter names. Thread-safe.
class WeightSource : public ParameterSource {
 public:
  // Returns all tensors.
  virtual std::span<const ParameterSpec> parameters() const = 0;
  // Returns warnings about the source, one sentence each.
  virtual std::span<const std::string> warnings() const { return {}; }
  // Throws UserError if the tensor is missing or has the wrong shape or dtype. Does not read data.
  virtual void check(const ParameterSpec& parameter) const = 0;
  // Returns the file with the parameter, or the folder if it is in several files. The parameter must pass check().
  virtual const std::filesystem::path& file_of(const ParameterSpec& parameter) const = 0;
  // Throws on every rank unless all data read so far on any rank is intact and from one save. Collective.
  virtual void verify_what_was_read(ProcessGroup& /*group*/) const {}
};

}  // namespace mpzero
