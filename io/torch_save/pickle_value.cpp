#include "io/torch_save/pickle_value.hpp"

#include <array>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "io/files/damaged.hpp"

namespace mpzero::io::pickle {
namespace {

// Maximum nesting depth. Prevents infinite recursion in a cycle.
constexpr int kMaxJsonDepth = 32;
constexpr size_t kMaxJsonNodes = 100'000;
constexpr size_t kMaxDimensions = 16;

struct NamedType {
  std::string_view storage_class;
  std::string_view dtype;
  ScalarType type;
};
constexpr std::array kTypes = {
    NamedType{"torch FloatStorage", "torch float32", ScalarType::kFloat32},
    NamedType{"torch BFloat16Storage", "torch bfloat16", ScalarType::kBFloat16},
    NamedType{"torch HalfStorage", "torch float16", ScalarType::kFloat16},
};

nlohmann::json json_of(const Node& node, int depth, size_t& budget) {
  if (depth > kMaxJsonDepth || budget == 0) return "<too large>";
  --budget;
  switch (node.kind) {
    case Kind::kNone:
      return nullptr;
    case Kind::kBool:
      return node.integer != 0;
    case Kind::kInt:
      return node.integer;
    case Kind::kFloat:
      return node.number;
    case Kind::kText:
      return node.text;
    case Kind::kList:
    case Kind::kTuple: {
      nlohmann::json list = nlohmann::json::array();
      for (const Node* item : node.items) list.push_back(json_of(*item, depth + 1, budget));
      return list;
    }
    case Kind::kDict: {
      nlohmann::json object = nlohmann::json::object();
      for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
        const Node& key = *node.items[i];
        object[key.kind == Kind::kInt ? std::to_string(key.integer) : key.text] =
            json_of(*node.items[i + 1], depth + 1, budget);
      }
      return object;
    }
    case Kind::kBytes:
      return "<bytes>";
    case Kind::kStorage:
      return "<storage>";
    case Kind::kTensor:
      return "<tensor>";
    case Kind::kGlobal:
    case Kind::kObject:
      return "<" + node.text + ">";
  }
  return nullptr;
}

}  // namespace

int64_t bytes_of(ScalarType type) { return type == ScalarType::kFloat32 ? 4 : 2; }

Value Value::child(const Node& node, std::string_view name) const {
  return {*document_, node, path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name)};
}

std::string Value::description() const {
  switch (node_->kind) {
    case Kind::kNone:
      return "None";
    case Kind::kBool:
      return node_->integer != 0 ? "True" : "False";
    case Kind::kInt:
      return std::to_string(node_->integer);
    case Kind::kFloat:
      return fmt::format("{}", node_->number);
    case Kind::kText:
      return fmt::format("'{:.60}'", node_->text);
    case Kind::kBytes:
      return "bytes";
    case Kind::kList:
      return "a list";
    case Kind::kTuple:
      return "a tuple";
    case Kind::kDict:
      return "a dict";
    case Kind::kStorage:
      return "a storage";
    case Kind::kTensor:
      return "a tensor";
    case Kind::kGlobal:
      return fmt::format("the class or function {:.100}", node_->text);
    case Kind::kObject:
      return fmt::format("an object of the unsupported class {:.100}", node_->text);
  }
  return "nothing";
}

void Value::throw_unexpected(std::string_view expected) const {
  throw_user_error("{}: {} is {}, expected {}; {}", document_->name, path_.empty() ? "the content" : path_,
                   description(), expected, kChooseAnother);
}

std::optional<Value> Value::find(std::string_view key) const {
  if (node_->kind != Kind::kDict) throw_unexpected("a dict");
  for (size_t i = node_->items.size(); i >= 2; i -= 2) {
    const Node& candidate = *node_->items[i - 2];
    if (candidate.kind == Kind::kText && candidate.text == key) return child(*node_->items[i - 1], key);
  }
  return std::nullopt;
}

std::optional<Value> Value::find(int64_t key) const {
  if (node_->kind != Kind::kDict) throw_unexpected("a dict");
  for (size_t i = node_->items.size(); i >= 2; i -= 2) {
    const Node& candidate = *node_->items[i - 2];
    if (candidate.kind == Kind::kInt && candidate.integer == key) {
      return child(*node_->items[i - 1], std::to_string(key));
    }
  }
  return std::nullopt;
}

Value Value::at(std::string_view key) const {
  if (const std::optional<Value> found = find(key)) return *found;
  throw_user_error("{}: {} is missing{}; {}", document_->name, key, path_.empty() ? "" : " in " + path_,
                   kChooseAnother);
}

std::vector<std::pair<std::string, Value>> Value::entries() const {
  if (node_->kind != Kind::kDict) throw_unexpected("a dict");
  std::vector<std::pair<std::string, Value>> all;
  for (size_t i = 0; i + 1 < node_->items.size(); i += 2) {
    const Node& key = *node_->items[i];
    if (key.kind != Kind::kText) child(key, "key").throw_unexpected("a name");
    all.emplace_back(key.text, child(*node_->items[i + 1], key.text));
  }
  return all;
}

std::vector<Value> Value::elements() const {
  if (node_->kind != Kind::kList && node_->kind != Kind::kTuple) throw_unexpected("a list");
  std::vector<Value> all;
  all.reserve(node_->items.size());
  for (const Node* item : node_->items) all.push_back(child(*item, std::to_string(all.size())));
  return all;
}

std::optional<Value> Value::member(std::string_view name) const {
  if (node_->kind != Kind::kObject) throw_unexpected("an object");
  if (node_->state == nullptr || node_->state->kind != Kind::kDict) return std::nullopt;
  return Value(*document_, *node_->state, path_).find(name);
}

int64_t Value::integer() const {
  if (node_->kind != Kind::kInt) throw_unexpected("an integer");
  return node_->integer;
}

double Value::number() const {
  if (node_->kind == Kind::kInt) return static_cast<double>(node_->integer);
  if (node_->kind != Kind::kFloat) throw_unexpected("a number");
  return node_->number;
}

bool Value::boolean() const {
  if (node_->kind != Kind::kBool) throw_unexpected("True or False");
  return node_->integer != 0;
}

const std::string& Value::text() const {
  if (node_->kind != Kind::kText) throw_unexpected("a string");
  return node_->text;
}

std::vector<int64_t> Value::integers() const {
  std::vector<int64_t> all;
  for (const Value& element : elements()) all.push_back(element.integer());
  return all;
}

Tensor Value::tensor() const {
  if (node_->kind != Kind::kTensor) throw_unexpected("a tensor");
  const Node& storage = *node_->items[0];
  Tensor tensor;
  tensor.storage = storage.text;
  tensor.storage_numel = storage.integer;
  tensor.offset = child(*node_->items[1], "offset").integer();
  tensor.shape = child(*node_->items[2], "sizes").integers();
  const std::vector<int64_t> strides = child(*node_->items[3], "strides").integers();
  const std::string& type_name = storage.items[0]->text;
  bool known = false;
  for (const NamedType& named : kTypes) {
    if (type_name != named.storage_class && type_name != named.dtype) continue;
    tensor.type = named.type;
    known = true;
  }
  if (!known) {
    throw_user_error("{}: {} is a tensor of {}, which is not supported; save it as float32, bfloat16 or float16",
                     document_->name, path_, type_name);
  }
  bool fits = tensor.shape.size() == strides.size() && tensor.shape.size() <= kMaxDimensions && tensor.offset >= 0 &&
              tensor.storage_numel >= 0;
  int64_t numel = 1;
  for (const int64_t extent : tensor.shape) {
    fits = fits && extent >= 0 && !__builtin_mul_overflow(numel, extent, &numel);
  }
  fits = fits && numel <= tensor.storage_numel && tensor.offset <= tensor.storage_numel - numel;
  if (!fits) throw_unexpected("a tensor within the bounds of its storage");
  tensor.numel = numel;
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i > 0 && numel > 0; --i) {
    if (tensor.shape[i - 1] != 1 && strides[i - 1] != stride) throw_unexpected("a contiguous tensor");
    stride *= tensor.shape[i - 1];
  }
  return tensor;
}

nlohmann::json Value::to_json() const {
  size_t budget = kMaxJsonNodes;
  return json_of(*node_, 0, budget);
}

}  // namespace mpzero::io::pickle
