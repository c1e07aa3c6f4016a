#include "io/torch_save/pickle_reader.hpp"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/error.hpp"
#include "io/files/damaged.hpp"
#include "io/torch_save/pickle_constructors.hpp"
#include "io/torch_save/pickle_opcodes.hpp"

namespace mpzero::io::pickle {
namespace {

static_assert(std::endian::native == std::endian::little, "pickles are little-endian");

constexpr size_t kMaxNodes = size_t{1} << 22;
constexpr size_t kMaxStack = size_t{1} << 22;
constexpr int kMaxProtocol = 5;
constexpr size_t kMaxNameLength = 1024;
// Limits the total size of copied arguments, because a small pickle can refer to the same arguments many times.
constexpr size_t kMaxCopiedBytes = size_t{128} << 20;

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, std::string file) : bytes_(bytes) { document_.name = std::move(file); }

  Document run() {
    for (Opcode opcode{}; (opcode = static_cast<Opcode>(number<uint8_t>())) != Opcode::kStop;) step(opcode);
    document_.root = pop();
    return std::move(document_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw_incomplete("{} is damaged: its pickle {} at byte {}; {}", document_.name, what, position_, kChooseAnother);
  }

  std::span<const std::byte> take(uint64_t count) {
    if (count > bytes_.size() - position_) fail("ends too early");
    const auto part = bytes_.subspan(position_, static_cast<size_t>(count));
    position_ += static_cast<size_t>(count);
    return part;
  }

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }

  std::string characters(uint64_t count) {
    const auto part = take(count);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

  // Returns the text up to the end of the line and consumes the line break.
  std::string line() {
    const size_t begin = position_;
    while (position_ < bytes_.size() && bytes_[position_] != std::byte{'\n'}) ++position_;
    if (position_ == bytes_.size()) fail("ends too early");
    std::string text(reinterpret_cast<const char*>(bytes_.data()) + begin, position_ - begin);
    ++position_;
    return text;
  }

  Node* make(Kind kind) {
    if (document_.nodes.size() >= kMaxNodes) fail("has too many objects for a checkpoint");
    Node& node = document_.nodes.emplace_back();
    node.kind = kind;
    return &node;
  }

  void push(Node* node) {
    if (stack_.size() >= kMaxStack) fail("exceeds the stack size limit");
    stack_.push_back(node);
  }

  Node* top() {
    if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("pops from an empty stack");
    return stack_.back();
  }

  Node* pop() {
    Node* node = top();
    stack_.pop_back();
    return node;
  }

  std::vector<const Node*> pop_to_mark() {
    if (marks_.empty()) fail("is missing a mark");
    std::vector<const Node*> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()), stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_integer(int64_t value) {
    push(make(Kind::kInt));
    stack_.back()->integer = value;
  }

  void push_text(Kind kind, std::string text) {
    push(make(kind));
    stack_.back()->text = std::move(text);
  }

  void push_items(Kind kind, std::vector<const Node*> items) {
    push(make(kind));
    stack_.back()->items = std::move(items);
  }

  void push_tuple_of(size_t count) {
    std::vector<const Node*> items(count);
    for (size_t i = count; i > 0; --i) items[i - 1] = pop();
    push_items(Kind::kTuple, std::move(items));
  }

  // Reads a little-endian two's complement integer. An integer that exceeds int64_t becomes a kObject.
  void push_long(uint64_t count) {
    const auto part = take(count);
    if (part.size() > sizeof(int64_t)) {
      push_text(Kind::kObject, "builtins int");
      return;
    }
    uint64_t value = 0;
    std::memcpy(&value, part.data(), part.size());
    if (!part.empty() && part.size() < sizeof value && (std::to_integer<uint8_t>(part.back()) & 0x80U) != 0) {
      value |= ~uint64_t{0} << (8 * part.size());
    }
    push_integer(static_cast<int64_t>(value));
  }

  void push_double() {
    const auto bits = __builtin_bswap64(number<uint64_t>());
    push(make(Kind::kFloat));
    stack_.back()->number = std::bit_cast<double>(bits);
  }

  void remember(uint64_t index) {
    if (memo_.size() >= kMaxNodes) fail("has too many memo entries for a checkpoint");
    memo_[index] = top();
  }

  void recall(uint64_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) fail("reads an object that is not in the memo");
    push(found->second);
  }

  // Discards items of unknown objects.
  void append(const std::vector<const Node*>& items) {
    add_items(Kind::kList, items, "appends to a value that is not a list");
  }
  void set_items(const std::vector<const Node*>& items) {
    add_items(Kind::kDict, items, "sets a key in a value that is not a dict");
  }
  void add_items(Kind kind, const std::vector<const Node*>& items, std::string_view otherwise) {
    Node* target = top();
    if (target->kind == kind)
      target->items.insert(target->items.end(), items.begin(), items.end());
    else if (target->kind != Kind::kObject)
      fail(otherwise);
  }

  std::vector<const Node*> pairs(std::vector<const Node*> items) const {
    if (items.size() % 2 != 0) fail("sets a key without a value");
    return items;
  }

  void call(const Node& callable, const Node& arguments) {
    if (callable.kind != Kind::kGlobal) fail("calls an object that is not a function");
    if (arguments.kind != Kind::kTuple) fail("calls a function without an argument tuple");
    Node* made = make(Kind::kNone);
    if (const char* wrong = construct(callable.text, arguments.items, *made)) fail(wrong);
    copied_bytes_ += made->items.size() * sizeof(void*) + made->text.size();
    if (copied_bytes_ > kMaxCopiedBytes) fail("has too many function calls for a checkpoint");
    push(made);
  }

  void push_name(const std::string& module, const std::string& name) {
    if (module.size() + name.size() > kMaxNameLength) fail("contains a class name that is too long");
    push_text(Kind::kGlobal, module + " " + name);
  }

  void build() {
    const Node* state = pop();
    Node* target = top();
    if (target->kind == Kind::kObject) target->state = state;
  }

  void push_storage() {
    const Node* id = pop();
    Node* storage = make(Kind::kStorage);
    if (const char* wrong = fill_storage(*id, *storage)) fail(wrong);
    push(storage);
  }

  void step(Opcode opcode);

  std::span<const std::byte> bytes_;
  size_t position_ = 0;
  Document document_;
  std::vector<Node*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Node*> memo_;
  size_t copied_bytes_ = 0;
};

void Reader::step(Opcode opcode) {
  switch (opcode) {
    case Opcode::kProto:
      if (number<uint8_t>() > kMaxProtocol) fail("has an unknown protocol");
      return;
    case Opcode::kFrame:
      return static_cast<void>(take(sizeof(uint64_t)));
    case Opcode::kMark:
      if (marks_.size() >= kMaxStack) fail("exceeds the mark limit");
      return marks_.push_back(stack_.size());
    case Opcode::kPop:
      if (!marks_.empty() && stack_.size() == marks_.back()) return marks_.pop_back();
      return static_cast<void>(pop());
    case Opcode::kPopMark:
      return static_cast<void>(pop_to_mark());
    case Opcode::kNone:
      return push(make(Kind::kNone));
    case Opcode::kNewTrue:
    case Opcode::kNewFalse:
      push(make(Kind::kBool));
      stack_.back()->integer = opcode == Opcode::kNewTrue ? 1 : 0;
      return;
    case Opcode::kBinInt:
      return push_integer(number<int32_t>());
    case Opcode::kBinInt1:
      return push_integer(number<uint8_t>());
    case Opcode::kBinInt2:
      return push_integer(number<uint16_t>());
    case Opcode::kLong1:
      return push_long(number<uint8_t>());
    case Opcode::kLong4:
      return push_long(number<uint32_t>());
    case Opcode::kBinFloat:
      return push_double();
    case Opcode::kShortBinUnicode:
      return push_text(Kind::kText, characters(number<uint8_t>()));
    case Opcode::kBinUnicode:
      return push_text(Kind::kText, characters(number<uint32_t>()));
    case Opcode::kBinUnicode8:
      return push_text(Kind::kText, characters(number<uint64_t>()));
    case Opcode::kShortBinString:
    case Opcode::kShortBinBytes:
      return push_text(Kind::kBytes, characters(number<uint8_t>()));
    case Opcode::kBinString:
    case Opcode::kBinBytes:
      return push_text(Kind::kBytes, characters(number<uint32_t>()));
    case Opcode::kBinBytes8:
    case Opcode::kByteArray8:
      return push_text(Kind::kBytes, characters(number<uint64_t>()));
    case Opcode::kEmptyDict:
      return push(make(Kind::kDict));
    case Opcode::kEmptyList:
    case Opcode::kEmptySet:
      return push(make(Kind::kList));
    case Opcode::kEmptyTuple:
      return push(make(Kind::kTuple));
    case Opcode::kTuple1:
      return push_tuple_of(1);
    case Opcode::kTuple2:
      return push_tuple_of(2);
    case Opcode::kTuple3:
      return push_tuple_of(3);
    case Opcode::kTuple:
      return push_items(Kind::kTuple, pop_to_mark());
    case Opcode::kList:
    case Opcode::kFrozenSet:
      return push_items(Kind::kList, pop_to_mark());
    case Opcode::kDict:
      return push_items(Kind::kDict, pairs(pop_to_mark()));
    case Opcode::kAppend:
      return append({pop()});
    case Opcode::kAppends:
    case Opcode::kAddItems:
      return append(pop_to_mark());
    case Opcode::kSetItem: {
      const Node* value = pop();
      return set_items({pop(), value});
    }
    case Opcode::kSetItems:
      return set_items(pairs(pop_to_mark()));
    case Opcode::kBinGet:
      return recall(number<uint8_t>());
    case Opcode::kLongBinGet:
      return recall(number<uint32_t>());
    case Opcode::kBinPut:
      return remember(number<uint8_t>());
    case Opcode::kLongBinPut:
      return remember(number<uint32_t>());
    case Opcode::kMemoize:
      return remember(memo_.size());
    case Opcode::kGlobal: {
      const std::string module = line();
      return push_name(module, line());
    }
    case Opcode::kStackGlobal: {
      const Node* name = pop();
      const Node* module = pop();
      if (name->kind != Kind::kText || module->kind != Kind::kText) fail("contains a class name that is not a string");
      return push_name(module->text, name->text);
    }
    case Opcode::kReduce:
    case Opcode::kNewObj: {
      const Node* arguments = pop();
      return call(*pop(), *arguments);
    }
    case Opcode::kBuild:
      return build();
    case Opcode::kBinPersId:
      return push_storage();
    case Opcode::kStop:
      return;  // handled in run()
  }
  --position_;
  fail(fmt::format("has the unknown opcode {:#04x}", static_cast<uint8_t>(opcode)));
}

}  // namespace

Document read(std::span<const std::byte> bytes, std::string file) {
  if (static_cast<int64_t>(bytes.size()) > kMaxPickleBytes) {
    throw_incomplete("the pickle in {} has {} bytes, but the limit is {} bytes; {}", file, bytes.size(),
                     kMaxPickleBytes, kChooseAnother);
  }
  return Reader(bytes, std::move(file)).run();
}

}  // namespace mpzero::io::pickle
