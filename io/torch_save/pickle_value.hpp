#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The content of a Python pickle as plain data. No code in it is ever run: a class or function that the reader does not
// know becomes a kObject with its name.
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
  kStorage,  // text: its key in the archive; items: the class that names its dtype; integer: number of elements
  kTensor,   // items: storage, offset, sizes, strides
  kGlobal,   // text: "module name"
  kObject,   // text: its class, "module name"; items: constructor arguments; state: the state that was set
};

struct Node {
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<const Node*> items;
  const Node* state = nullptr;
};

// Owns all nodes of one pickle. They refer to each other freely, also in cycles.
struct Document {
  std::deque<Node> nodes;
  const Node* root = nullptr;
  std::string name;  // of the file, for messages
};

enum class ScalarType : uint8_t { kFloat32, kBFloat16, kFloat16 };
int64_t bytes_of(ScalarType type);

// A tensor whose elements are in an archive. Its extents fit its storage.
struct Tensor {
  std::string storage;  // key
  ScalarType type = ScalarType::kFloat32;
  int64_t storage_numel = 0;
  int64_t offset = 0;  // of its first element, in elements
  std::vector<int64_t> shape;
  int64_t numel = 0;
};

// A position in a document. Accessing something that does not exist throws a UserError that names the file, the
// position and the actual value. The document must outlive it.
class Value {
 public:
  Value(const Document& document, const Node& node, std::string path)
      : document_(&document), node_(&node), path_(std::move(path)) {}

  Kind kind() const { return node_->kind; }
  bool is_none() const { return node_->kind == Kind::kNone; }
  const std::string& path() const { return path_; }

  // For a dict with text or int keys. Of several equal keys the last one counts.
  std::optional<Value> find(std::string_view key) const;
  std::optional<Value> find(int64_t key) const;
  Value at(std::string_view key) const;
  // The keys and values of a dict, in order. Keys must be strings.
  std::vector<std::pair<std::string, Value>> entries() const;
  // The elements of a list or tuple.
  std::vector<Value> elements() const;
  // Members of an object, as its __dict__ was saved.
  std::optional<Value> member(std::string_view name) const;

  int64_t integer() const;
  double number() const;  // also of an int
  bool boolean() const;
  const std::string& text() const;
  std::vector<int64_t> integers() const;
  // A contiguous tensor of a dtype that can be converted to fp32.
  Tensor tensor() const;

  // Dicts, lists and plain values. Other values become the name of their kind in angle brackets.
  nlohmann::json to_json() const;

  // Throws: "FILE: PATH is WHAT where EXPECTED was expected; REMEDY".
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
