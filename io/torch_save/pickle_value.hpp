#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// A Python pickle as plain data. Unknown classes and functions produce a kObject with their name.
namespace mpzero::io::pickle {

enum class Kind : uint8_t {
  kNone,
  kBool,     // integer
  kInt,      // integer
  kFloat,    // number
  kText,     // text
  kBytes,    // text
  kList,     // items
  kTuple,    // items
  kDict,     // items: key, value, key, value, ...
  kStorage,  // text: key in the archive; items: class that defines the dtype; integer: number of elements
  kTensor,   // items: storage, offset, sizes, strides
  kGlobal,   // text: "module name"
  kObject,   // text: class, "module name"; items: constructor arguments; state: argument of BUILD
};

struct Node {
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<const Node*> items;
  const Node* state = nullptr;
};

// Owns all nodes of one pickle. References between nodes may be cyclic.
struct Document {
  std::deque<Node> nodes;
  const Node* root = nullptr;
  std::string name;  // file name for messages
};

enum class ScalarType : uint8_t { kFloat32, kBFloat16, kFloat16 };
int64_t bytes_of(ScalarType type);

// A tensor in an archive. Offset and shape are within the bounds of the storage.
struct Tensor {
  std::string storage;  // key in the archive
  ScalarType type = ScalarType::kFloat32;
  int64_t storage_numel = 0;
  int64_t offset = 0;  // position of the first element in the storage, in elements
  std::vector<int64_t> shape;
  int64_t numel = 0;
};

// A view of a node in a document. Invalid accesses throw UserError with the file, the path and the actual value. The
// document must outlive this object.
class Value {
 public:
  Value(const Document& document, const Node& node, std::string path)
      : document_(&document), node_(&node), path_(std::move(path)) {}

  Kind kind() const { return node_->kind; }
  bool is_none() const { return node_->kind == Kind::kNone; }
  const std::string& path() const { return path_; }

  // Returns the value of a key in a dict, or std::nullopt if the key is missing. If a key is duplicated, the last entry
  // is used.
  std::optional<Value> find(std::string_view key) const;
  std::optional<Value> find(int64_t key) const;
  Value at(std::string_view key) const;
  // Returns the keys and values of a dict, in order. Keys must be strings.
  std::vector<std::pair<std::string, Value>> entries() const;
  // Returns the elements of a list or tuple.
  std::vector<Value> elements() const;
  // Returns a member from the saved __dict__ of an object, or std::nullopt if the member is missing.
  std::optional<Value> member(std::string_view name) const;

  int64_t integer() const;
  double number() const;  // also converts an int
  bool boolean() const;
  const std::string& text() const;
  std::vector<int64_t> integers() const;
  // Returns a contiguous tensor of dtype float32, bfloat16 or float16.
  Tensor tensor() const;

  // Converts dicts, lists and plain values to JSON. Other values are converted to the name of their kind in angle
  // brackets.
  nlohmann::json to_json() const;

  // Throws UserError: "FILE: PATH is ACTUAL, expected EXPECTED; REMEDY".
  [[noreturn]] void throw_unexpected(std::string_view expected) const;

 private:
  Value child(const Node& node, std::string_view name) const;
  std::string description() const;

  const Document* document_;
  const Node* node_;
  std::string path_;
};

inline Value root_of(const Document& document) { return {document, *document.root, ""}; }

}  // namespace mpzero::io::pickle
