#include "io/torch_save/pickle_constructors.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>

namespace mpzero::io::pickle {
namespace {

using Arguments = std::span<const Node* const>;
constexpr const char* kWrongArguments = "calls a function with invalid arguments";
// Limits the nesting of _rebuild_from_type_v2 calls, which a pickle could otherwise make arbitrarily deep.
constexpr int kMaxWrappers = 4;
constexpr const char* kZeroStages = "deepspeed.runtime.zero.config ZeroStageEnum";

const char* construct(const std::string& name, Arguments arguments, Node& made, int wrappers);

const char* ordered_dict(Arguments arguments, Node& made) {
  made.kind = Kind::kDict;
  if (arguments.empty()) return nullptr;
  if (arguments[0]->kind != Kind::kList && arguments[0]->kind != Kind::kTuple) return kWrongArguments;
  for (const Node* pair : arguments[0]->items) {
    if ((pair->kind != Kind::kList && pair->kind != Kind::kTuple) || pair->items.size() != 2) return kWrongArguments;
    made.items.insert(made.items.end(), pair->items.begin(), pair->items.end());
  }
  return nullptr;
}

const char* sequence(Kind kind, Arguments arguments, Node& made) {
  made.kind = kind;
  if (arguments.empty()) return nullptr;
  if (arguments[0]->kind != Kind::kList && arguments[0]->kind != Kind::kTuple) return kWrongArguments;
  made.items = arguments[0]->items;
  return nullptr;
}

// _rebuild_tensor_v2(storage, offset, sizes, strides, ...).
const char* tensor(Arguments arguments, Node& made) {
  if (arguments.size() < 4 || arguments[0]->kind != Kind::kStorage) return kWrongArguments;
  made.kind = Kind::kTensor;
  made.items.assign(arguments.begin(), arguments.begin() + 4);
  return nullptr;
}

// _codecs.encode(text, "latin1"), the form of bytes in protocol 2. The text is UTF-8 with code points below 256.
const char* latin1_bytes(Arguments arguments, Node& made) {
  if (arguments.empty() || arguments[0]->kind != Kind::kText) return kWrongArguments;
  made.kind = Kind::kBytes;
  const std::string& text = arguments[0]->text;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < 0x80) {
      made.text.push_back(text[i]);
    } else if ((byte & 0xFCU) == 0xC0 && i + 1 < text.size()) {
      made.text.push_back(static_cast<char>((byte & 0x03U) << 6 | (static_cast<uint8_t>(text[++i]) & 0x3FU)));
    } else {
      return kWrongArguments;
    }
  }
  return nullptr;
}

template <typename T>
T from_bytes(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

// numpy.core.multiarray.scalar(dtype, bytes).
const char* numpy_scalar(const std::string& name, Arguments arguments, Node& made) {
  made.kind = Kind::kObject;
  made.text = name;
  made.items.assign(arguments.begin(), arguments.end());
  if (arguments.size() != 2 || arguments[0]->kind != Kind::kObject || arguments[0]->text != "numpy dtype" ||
      arguments[0]->items.empty() || arguments[0]->items[0]->kind != Kind::kText ||
      arguments[1]->kind != Kind::kBytes) {
    return nullptr;
  }
  const std::string& type = arguments[0]->items[0]->text;
  const std::string& bytes = arguments[1]->text;
  const auto is = [&](std::string_view wanted, size_t size) { return type == wanted && bytes.size() == size; };
  if (is("f8", 8)) {
    made.kind = Kind::kFloat;
    made.number = from_bytes<double>(bytes);
  } else if (is("f4", 4)) {
    made.kind = Kind::kFloat;
    made.number = from_bytes<float>(bytes);
  } else if (is("i8", 8)) {
    made.kind = Kind::kInt;
    made.integer = from_bytes<int64_t>(bytes);
  } else if (is("i4", 4)) {
    made.kind = Kind::kInt;
    made.integer = from_bytes<int32_t>(bytes);
  } else if (is("b1", 1)) {
    made.kind = Kind::kBool;
    made.integer = bytes[0] != 0 ? 1 : 0;
  }
  return nullptr;
}

// getattr(ZeroStageEnum, "gradients"), the form of enum members in some Python releases (for example 3.11.2). Other
// releases write ZeroStageEnum(2).
std::optional<int64_t> zero_stage(Arguments arguments) {
  if (arguments.size() != 2 || arguments[0]->kind != Kind::kGlobal || arguments[0]->text != kZeroStages ||
      arguments[1]->kind != Kind::kText) {
    return std::nullopt;
  }
  static constexpr std::array<std::string_view, 4> kNames{"disabled", "optimizer_states", "gradients", "weights"};
  const auto* const found = std::find(kNames.begin(), kNames.end(), arguments[1]->text);
  if (found == kNames.end()) return std::nullopt;
  return found - kNames.begin();
}

const char* construct(const std::string& name, Arguments arguments, Node& made, int wrappers) {
  if (name == "collections OrderedDict") return ordered_dict(arguments, made);
  if (name == "torch Size") return sequence(Kind::kTuple, arguments, made);
  if (name == "builtins set" || name == "__builtin__ set" || name == "builtins frozenset") {
    return sequence(Kind::kList, arguments, made);
  }
  if (name == "torch._utils _rebuild_tensor_v2") return tensor(arguments, made);
  if (name == "torch._utils _rebuild_parameter") {
    if (arguments.empty() || arguments[0]->kind != Kind::kTensor) return kWrongArguments;
    made = *arguments[0];
    return nullptr;
  }
  if (name == "torch._tensor _rebuild_from_type_v2") {
    if (arguments.size() < 3 || arguments[0]->kind != Kind::kGlobal || arguments[2]->kind != Kind::kTuple ||
        wrappers >= kMaxWrappers) {
      return kWrongArguments;
    }
    return construct(arguments[0]->text, arguments[2]->items, made, wrappers + 1);
  }
  if (name == kZeroStages) {
    if (arguments.size() != 1 || arguments[0]->kind != Kind::kInt) return kWrongArguments;
    made.kind = Kind::kInt;
    made.integer = arguments[0]->integer;
    return nullptr;
  }
  if (name == "__builtin__ getattr" || name == "builtins getattr") {
    if (const std::optional<int64_t> stage = zero_stage(arguments)) {
      made.kind = Kind::kInt;
      made.integer = *stage;
      return nullptr;
    }
  }
  if (name == "_codecs encode") return latin1_bytes(arguments, made);
  if (name == "numpy.core.multiarray scalar" || name == "numpy._core.multiarray scalar") {
    return numpy_scalar(name, arguments, made);
  }
  made.kind = Kind::kObject;
  made.text = name;
  made.items.assign(arguments.begin(), arguments.end());
  return nullptr;
}

}  // namespace

const char* construct(const std::string& name, std::span<const Node* const> arguments, Node& made) {
  return construct(name, arguments, made, 0);
}

const char* fill_storage(const Node& id, Node& storage) {
  constexpr size_t kFields = 5;
  if (id.kind != Kind::kTuple || id.items.size() < kFields || id.items[0]->kind != Kind::kText ||
      id.items[0]->text != "storage" || id.items[1]->kind != Kind::kGlobal || id.items[2]->kind != Kind::kText ||
      id.items[4]->kind != Kind::kInt || id.items[4]->integer < 0) {
    return "refers to an object that is not a torch storage";
  }
  storage.items = {id.items[1]};
  storage.text = id.items[2]->text;
  storage.integer = id.items[4]->integer;
  return nullptr;
}

}  // namespace mpzero::io::pickle
