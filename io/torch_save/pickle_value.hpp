#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What a Python pickle holds, as plain data. Nothing of it is ever run: a class or function that the reader does not
// know by name becomes a kObject that carries the name.
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
  kStorage,  // text: its key in the archive; items: the class that names its type; integer: number of elements
  kTensor,   // items: storage, offset, sizes, strides
  kGlobal,   // text: "module name"
  kObject,   // text: its class, "module name"; items: what it was made from; state: what was put into it
};

struct Node {
  Kind kind = Kind::kNone;
  int64_t integer = 0;
  double number = 0;
  std::string text;
  std::vector<const Node*> items;
  const Node* state = nullptr;
};

// Owns all nodes of one pickle. They refer to each other freely, in circles too.
struct Document {
  std::deque<Node> nodes;
  const Node* root = nullptr;
  std::string name;  // of the file, for messages
};

enum class ScalarType : uint8_t { kFloat32, kBFloat16, kFloat16 };
int64_t bytes_of(ScalarType type);

// A tensor whose elements lie in an archive. Its extents fit its storage.
struct Tensor {
  std::string storage;  // key
  ScalarType type = ScalarType::kFloat32;
  int64_t storage_numel = 0;
  int64_t offset = 0;  // of its first element, in elements
  std::vector<int64_t> shape;
  int64_t numel = 0;
};

// A place in a document. Whoever asks for what is not there gets a UserError that names the file, the place and what
// stands there instead. The document must outlive it.
class Value {
 public:
  Value(const Document& document, const Node& node, std::string path)
      : document_(&document), node_(&node), path_(std::move(path)) {}

  Kind kind() const { return node_->kind; }
  bool is_none() const { return node_->kind == Kind::kNone; }
  const std::string& path() const { return path_; }

  // Of a dict with text or int keys; the last of several equal keys counts.
  std::optional<Value> find(std::string_view key) const;
  std::optional<Value> find(int64_t key) const;
  Value at(std::string_view key) const;
  // A dict's keys and values, in order. Keys must be texts.
  std::vector<std::pair<std::string, Value>> entries() const;
  // Of a list or tuple.
  std::vector<Value> elements() const;
  // Members of an object, as its __dict__ was saved.
  std::optional<Value> member(std::string_view name) const;

  int64_t integer() const;
  double number() const;  // ints, too
  bool boolean() const;
  const std::string& text() const;
  std::vector<int64_t> integers() const;
  // A contiguous tensor of a type that can be turned into fp32.
  Tensor tensor() const;

  // Dicts, lists and plain values; what has no JSON becomes the name of its kind in angle brackets.
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
