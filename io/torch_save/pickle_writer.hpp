#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "io/torch_save/pickle_value.hpp"

namespace mpzero::io::pickle {

// Writes a pickle of protocol 2, like torch.save. Each call writes one value. Between begin and end of a dict keys and
// values alternate. The caller closes what it opens.
class Writer {
 public:
  Writer();

  void none();
  void boolean(bool value);
  void integer(int64_t value);
  void number(double value);
  void text(std::string_view value);  // UTF-8

  void begin_dict();
  void begin_ordered_dict();
  void end_dict();
  void begin_list();
  void end_list();
  void begin_tuple();
  void end_tuple();
  // An object that is created without arguments and whose members follow as keys and values.
  void begin_object(std::string_view module, std::string_view name);
  void end_object();

  void size(std::span<const int64_t> shape);  // a torch.Size
  // A contiguous tensor on the CPU.
  void tensor(const Tensor& tensor);
  void json(const nlohmann::json& value);

  // The finished pickle.
  std::string finish();

 private:
  void put(uint8_t opcode) { bytes_.push_back(static_cast<char>(opcode)); }
  void global(std::string_view module, std::string_view name);
  void tuple_of(std::span<const int64_t> values);

  std::string bytes_;
};

}  // namespace mpzero::io::pickle
