#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/torch_save/pickle_value.hpp"

// Writes pickles of protocol 2, like torch.save. Each function except dump() returns the opcodes that push one value.
namespace mpzero::io::pickle {

std::string none();
std::string boolean(bool value);
std::string integer(int64_t value);
std::string number(double value);
std::string text(std::string_view value);  // UTF-8
std::string list(const std::vector<std::string>& values);
std::string size(std::span<const int64_t> shape);  // a torch.Size
// Returns the opcodes that push a contiguous CPU tensor.
std::string tensor(const Tensor& tensor);
std::string json(const nlohmann::json& value);

struct Entry {
  Entry(std::string_view key, const std::string& value) : code(text(key) + value) {}
  Entry(int64_t key, const std::string& value) : code(integer(key) + value) {}
  std::string code;
};
std::string dict(const std::vector<Entry>& entries);
std::string ordered_dict(const std::vector<Entry>& entries);
// Returns the opcodes that push an object that is constructed without arguments and has the given members.
std::string object(std::string_view module, std::string_view name, const std::vector<Entry>& members);

// Returns a complete pickle of a value.
std::string dump(const std::string& value);

}  // namespace mpzero::io::pickle
