#include "io/data/token_dataset.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "io/bytes/aligned_buffers.hpp"
#include "io/bytes/checksum.hpp"
#include "io/data/token_blocks.hpp"
#include "io/data/token_identity.hpp"
#include "io/files/atomic_file.hpp"
#include "io/hdf5/file.hpp"

namespace mpzero::io {
namespace {

// Detects changes of an open file. Reads of a truncated or overwritten file may succeed because HDF5 returns zeros for
// data past the end.
class FileWatch {
 public:
  // `descriptor` is the open file, which must outlive this object. `path` is its path at the time of opening.
  FileWatch(std::filesystem::path path, int descriptor);

  // Throws UserError if the file was truncated, extended or overwritten, or if its path now refers to another file. All
  // data read since the last call is then invalid. Call once per batch, after reading. Costs one fstat(2) if the file
  // is unchanged. After a change of the modification time, compares a sample of 64 pages, so that `touch` has no
  // effect. Renaming or removing the open file also has no effect.
  void check();

 private:
  struct stat status() const;
  uint64_t sample() const;
  bool was_replaced(const struct stat& now) const;

  std::filesystem::path path_;
  int descriptor_;
  int64_t size_ = 0;
  uint64_t sampled_ = 0;  // checksum of the sampled pages
  // Values at the last successful check.
  int64_t modified_ns_ = 0;
  uint64_t num_names_ = 0;
};

constexpr int64_t kSampledPages = 64;

int64_t modified_ns(const struct stat& status) {
  return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

[[noreturn]] void throw_changed(const std::filesystem::path& path, const std::string& what) {
  throw_user_error(
      "{} {} while it was being read; restore the original data and start the run again to resume from the last "
      "checkpoint; use a different path for new data",
      path.string(), what);
}

FileWatch::FileWatch(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
  const struct stat now = status();
  size_ = now.st_size;
  modified_ns_ = modified_ns(now);
  num_names_ = now.st_nlink;
  sampled_ = sample();
}

void FileWatch::check() {
  const struct stat now = status();
  if (now.st_size != size_) throw_changed(path_, fmt::format("changed from {} to {} bytes", size_, now.st_size));
  if (modified_ns(now) != modified_ns_) {
    if (sample() != sampled_) throw_changed(path_, "was overwritten");
    modified_ns_ = modified_ns(now);
  }
  // A removed path may refer to a new file later.
  if (now.st_nlink != num_names_ || now.st_nlink == 0) {
    if (was_replaced(now)) throw_changed(path_, "was replaced by another file");
    num_names_ = now.st_nlink;
  }
}

struct stat FileWatch::status() const {
  struct stat result {};
  if (::fstat(descriptor_, &result) == 0) return result;
  // ESTALE means that another host removed the file from the network file system.
  if (errno == ESTALE) throw_changed(path_, "was removed or replaced");
  throw_system_error("check the state of", path_, errno);
}

uint64_t FileWatch::sample() const {
  StreamingChecksum checksum;
  std::array<std::byte, kPageBytes> page;
  const int64_t last = std::max<int64_t>(0, size_ - kPageBytes);
  for (int64_t i = 0; i < kSampledPages; ++i) {
    // Splits the product to prevent an overflow for large files.
    const int64_t offset = last / (kSampledPages - 1) * i + last % (kSampledPages - 1) * i / (kSampledPages - 1);
    ssize_t size = 0;
    do {
      size = ::pread(descriptor_, page.data(), page.size(), offset);
    } while (size < 0 && errno == EINTR);
    if (size < 0) throw_system_error("read", path_, errno);
    checksum.add(std::span(page).first(static_cast<size_t>(size)));
  }
  return checksum.value();
}

bool FileWatch::was_replaced(const struct stat& now) const {
  struct stat named {};
  // Removing the path does not affect the open file.
  if (::stat(path_.c_str(), &named) != 0) return false;
  return named.st_dev != now.st_dev || named.st_ino != now.st_ino;
}

constexpr int64_t kPlain = 1, kPacked = 2, kPairs = 3;  // format versions

}  // namespace

struct TokenDataset::Impl {
  Impl(std::filesystem::path path, int64_t seq_length, std::optional<bool> document_mask);
  void check_shapes() const;
  void check_rows() const;
  void check_ends();
  std::vector<uint64_t> read_offsets() const;
  void read(uint64_t begin, std::span<int64_t> out);
  void read_window(int64_t window, int64_t vocab_limit, std::span<int64_t> out);
  void read_loss_mask(int64_t window, std::span<float> out) const;
  // Calls read(i, window) for each window. Throws UserError if the file has changed.
  template <typename Read>
  void for_windows(std::span<const int64_t> windows, const Read& read);

  std::filesystem::path path;
  int64_t seq_length;
  hdf5::File file;
  hdf5::Dataset tokens;
  hdf5::Dataset document_offsets;
  std::vector<uint64_t> offsets;  // document offsets; empty without document masking
  std::optional<TokenBlocks> blocks;
  std::optional<hdf5::Dataset> loss_mask;
  std::optional<int64_t> row_length;  // set for a packed file or a file of pairs
  std::optional<Pairs> pairs;
  FileWatch watch;
  Tokenization tokenization;
  std::optional<int64_t> max_token_id;
  std::string source;
  std::string content_hash;
};

TokenDataset::Impl::Impl(std::filesystem::path file_path, int64_t length, std::optional<bool> document_mask)
    : path(std::move(file_path)),
      seq_length(length),
      file(hdf5::File::open(path)),
      tokens(file.dataset("tokens")),
      document_offsets(file.dataset("document_offsets")),
      watch(path, file.descriptor()) {
  const auto version = file.attribute<int64_t>("format_version");
  if (version < kPlain || version > kPairs) {
    throw_user_error("{} has format version {}, but this version of mpzero reads {} to {}", path.string(), version,
                     kPlain, kPairs);
  }
  if (version == kPairs) {
    pairs = {.source_length = file.attribute<int64_t>("source_length"),
             .pad_token_id = file.attribute<int64_t>("pad_token_id")};
  }
  if (version != kPlain) row_length = file.attribute<int64_t>("packed_sequence_length");
  tokenization = read_tokenization(file);
  if (const int64_t id = tokenization.end_of_turn_token_id.value_or(0); id < 0 || id >= tokenization.vocab_size) {
    throw_user_error("{}: end_of_turn_token_id {} is outside the vocabulary of {} ids", path.string(), id,
                     tokenization.vocab_size);
  }
  if (file.has_attribute("max_token_id")) max_token_id = file.attribute<int64_t>("max_token_id");
  source = file.text_attribute("source");
  if (file.contains("loss_mask")) loss_mask = file.dataset("loss_mask");
  check_shapes();
  if (row_length) check_rows();
  if (file.contains(TokenBlocks::kName)) blocks.emplace(tokens, file.dataset(TokenBlocks::kName));
  if (tokens.has_attribute(kTokensHashName)) content_hash = tokens.text_attribute(kTokensHashName);
  check_ends();
  if (pairs || (!row_length && !document_mask.value_or(false))) return;
  std::vector<uint64_t> all = read_offsets();
  if (document_mask.value_or(true)) offsets = std::move(all);
}

void TokenDataset::Impl::check_rows() const {
  if (*row_length < 1) throw_user_error("{}: packed_sequence_length {} must be at least 1", path.string(), *row_length);
  const auto row = static_cast<uint64_t>(*row_length);
  if (tokens.size() < row + 1 || (tokens.size() - 1) % row != 0) {
    throw_user_error(
        "{} is packed, but its token count ({}) is not one more than a multiple of packed_sequence_length ({})",
        path.string(), tokens.size(), row);
  }
  if (!loss_mask) throw_user_error("{} is packed but lacks /loss_mask", path.string());
  if (pairs && (pairs->source_length < 1 || pairs->source_length >= *row_length)) {
    throw_user_error("{}: source_length {} must be at least 1 and less than packed_sequence_length {}", path.string(),
                     pairs->source_length, *row_length);
  }
}

std::vector<uint64_t> TokenDataset::Impl::read_offsets() const {
  if (document_offsets.size() > tokens.size() + 1) {
    throw_user_error("/document_offsets of {} has {} elements for {} tokens", path.string(), document_offsets.size(),
                     tokens.size());
  }
  std::vector<uint64_t> all(document_offsets.size());
  document_offsets.read(0, std::span(all));
  for (size_t i = 1; i < all.size(); ++i) {
    if (all[i] >= all[i - 1]) continue;
    throw_user_error("/document_offsets of {} decreases from {} to {} at element {}", path.string(), all[i - 1], all[i],
                     i);
  }
  if (!row_length) return all;
  const auto row = static_cast<uint64_t>(*row_length);
  uint64_t row_end = row;
  for (const uint64_t offset : all) {
    if (offset > row_end) break;
    if (offset == row_end) row_end += row;
  }
  if (row_end < tokens.size()) {
    throw_user_error("{} is packed, but a document crosses the end of a row of {} tokens at token {}", path.string(),
                     row, row_end);
  }
  return all;
}

void TokenDataset::Impl::check_shapes() const {
  if (tokens.shape().size() != 1 || !(tokens.holds<uint16_t>() || tokens.holds<uint32_t>())) {
    throw_user_error("/tokens of {} is not a one-dimensional uint16 or uint32 dataset", path.string());
  }
  if (document_offsets.shape().size() != 1 || !document_offsets.holds<uint64_t>() || document_offsets.size() == 0) {
    throw_user_error("/document_offsets of {} is not a non-empty one-dimensional uint64 dataset", path.string());
  }
  if (loss_mask &&
      (loss_mask->shape() != tokens.shape() || !(loss_mask->holds<uint8_t>() || loss_mask->holds<float>()))) {
    throw_user_error(
        "/loss_mask of {} is not a one-dimensional uint8 or float32 dataset with one value for each of the {} tokens",
        path.string(), tokens.size());
  }
  if (tokens.size() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw_user_error("{} is damaged: its header specifies {} tokens, which exceeds 2^63 - 1", path.string(),
                     tokens.size());
  }
}

void TokenDataset::Impl::check_ends() {
  uint64_t first = 0, last = 0;
  document_offsets.read(0, std::span(&first, 1));
  document_offsets.read(document_offsets.size() - 1, std::span(&last, 1));
  if (first != 0 || last != tokens.size()) {
    throw_user_error("{} is incomplete: its documents span tokens {} to {}, but it has {} tokens", path.string(), first,
                     last, tokens.size());
  }
  if (tokens.size() == 0) throw_user_error("{} has no tokens", path.string());
  // Checks only some tokens to avoid reading the full file. Later reads check all other tokens.
  int64_t last_token = 0;
  read(tokens.size() - 1, std::span(&last_token, 1));
}

TokenDataset::TokenDataset(std::filesystem::path path, int64_t seq_length, std::optional<bool> document_mask) {
  if (seq_length < 1) throw_user_error("--seq_length must be at least 1, not {}", seq_length);
  // System errors are reported unchanged because preparing the data again would not fix them.
  if (std::error_code ignored; std::filesystem::is_regular_file(path, ignored)) File::open_for_reading(path);
  try {
    impl_ = std::make_unique<Impl>(std::move(path), seq_length, document_mask);
  } catch (const UserError& error) {
    throw_user_error("token dataset: {}; create it with app/prepare_data.py", error.what());
  }
  if (const uint64_t size = impl_->tokens.size(); !impl_->row_length && size < static_cast<uint64_t>(seq_length) + 1) {
    throw_user_error(
        "token dataset: {} has {} tokens, but one sequence needs {} (--seq_length {} plus one); prepare more text or "
        "reduce --seq_length",
        impl_->path.string(), size, seq_length + 1, seq_length);
  }
  if (const auto row = impl_->row_length; row && *row != seq_length) {
    throw_user_error("{} is packed into sequences of {} tokens, but --seq_length is {}; pass --seq_length {}",
                     impl_->path.string(), *row, seq_length, *row);
  }
}

TokenDataset::~TokenDataset() = default;
TokenDataset::TokenDataset(TokenDataset&&) noexcept = default;
TokenDataset& TokenDataset::operator=(TokenDataset&&) noexcept = default;

const std::filesystem::path& TokenDataset::path() const { return impl_->path; }
int64_t TokenDataset::seq_length() const { return impl_->seq_length; }
int64_t TokenDataset::num_tokens() const { return static_cast<int64_t>(impl_->tokens.size()); }
int64_t TokenDataset::num_documents() const { return static_cast<int64_t>(impl_->document_offsets.size()) - 1; }
bool TokenDataset::is_packed() const { return impl_->row_length.has_value(); }
const Tokenization& TokenDataset::tokenization() const { return impl_->tokenization; }
const std::string& TokenDataset::source() const { return impl_->source; }
bool TokenDataset::has_checksums() const { return impl_->blocks.has_value(); }
const std::string& TokenDataset::content_hash() const { return impl_->content_hash; }
int64_t TokenDataset::num_windows() const { return (num_tokens() - 1) / impl_->seq_length; }

void TokenDataset::check_vocabulary(int64_t vocab_limit) const {
  if (!impl_->max_token_id || *impl_->max_token_id < vocab_limit) return;
  throw_user_error(
      "{} has token ids up to {}, but the largest id of the model is {}; prepare the data with the model's tokenizer "
      "(the file was prepared with '{}') or, for a new model, pass --vocab_size {} or more",
      impl_->path.string(), *impl_->max_token_id, vocab_limit - 1, impl_->tokenization.tokenizer,
      *impl_->max_token_id + 1);
}

void TokenDataset::Impl::read(uint64_t begin, std::span<int64_t> out) {
  if (blocks) {
    blocks->read(begin, out);
  } else {
    tokens.check_written(begin, out.size());
    tokens.read(begin, out);
  }
}

void TokenDataset::Impl::read_window(int64_t window, int64_t vocab_limit, std::span<int64_t> out) {
  const auto begin = static_cast<uint64_t>(window * seq_length);
  try {
    read(begin, out);
  } catch (const UserError& error) {
    throw_user_error("{}; prepare the data again (app/prepare_data.py --overwrite)", error.what());
  }
  for (size_t i = 0; i < out.size(); ++i) {
    if (out[i] >= vocab_limit) {
      throw_user_error(
          "{} has token id {} at position {}, but the largest id of the model is {}; prepare the data with the model's "
          "tokenizer (the file was prepared with '{}') or, for a new model, pass --vocab_size {} or more",
          path.string(), out[i], begin + i, vocab_limit - 1, tokenization.tokenizer, out[i] + 1);
    }
  }
}

void TokenDataset::read_windows(std::span<const int64_t> windows, int64_t vocab_limit, std::span<int64_t> out) const {
  const auto length = static_cast<size_t>(impl_->seq_length + 1);
  if (out.size() != windows.size() * length) {
    throw_failure("cannot read {} windows of {} tokens into a buffer of {} values", windows.size(), length, out.size());
  }
  impl_->for_windows(windows, [&](size_t i, int64_t window) {
    impl_->read_window(window, vocab_limit, out.subspan(i * length, length));
  });
}

template <typename Read>
void TokenDataset::Impl::for_windows(std::span<const int64_t> windows, const Read& read) {
  const int64_t count = (static_cast<int64_t>(tokens.size()) - 1) / seq_length;
  for (const int64_t window : windows) {
    if (window < 0 || window >= count) {
      throw_failure("window {} was requested from {}, which has {} windows", window, path.string(), count);
    }
  }
  try {
    for (size_t i = 0; i < windows.size(); ++i) read(i, windows[i]);
  } catch (const UserError&) {
    // Reports a changed file first, because the change may have caused the invalid tokens.
    watch.check();
    throw;
  }
  watch.check();
}

void TokenDataset::Impl::read_loss_mask(int64_t window, std::span<float> out) const {
  const auto begin = static_cast<uint64_t>(window * seq_length) + 1;
  loss_mask->check_written(begin, out.size());
  loss_mask->read(begin, out);
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::isfinite(out[i]) && out[i] >= 0) continue;
    throw_user_error("/loss_mask of {} is {} at position {}; a weight must be at least 0", path.string(), out[i],
                     begin + i);
  }
}

bool TokenDataset::has_loss_mask() const { return impl_->loss_mask.has_value(); }

void TokenDataset::read_loss_mask(std::span<const int64_t> windows, std::span<float> out) const {
  const auto length = static_cast<size_t>(impl_->seq_length);
  impl_->for_windows(windows,
                     [&](size_t i, int64_t window) { impl_->read_loss_mask(window, out.subspan(i * length, length)); });
}

const std::optional<TokenDataset::Pairs>& TokenDataset::pairs() const { return impl_->pairs; }

bool TokenDataset::masks_documents() const { return !impl_->offsets.empty(); }

void TokenDataset::append_document_ends(int64_t window, int64_t begin, std::vector<int32_t>& ends) const {
  const std::vector<uint64_t>& offsets = impl_->offsets;
  const auto first = static_cast<uint64_t>(window * impl_->seq_length);
  const uint64_t last = first + static_cast<uint64_t>(impl_->seq_length);
  const auto append = [&](uint64_t end) {
    ends.push_back(static_cast<int32_t>(begin + static_cast<int64_t>(end - first)));
  };
  uint64_t previous = first;
  for (auto at = std::upper_bound(offsets.begin(), offsets.end(), first); at != offsets.end() && *at < last; ++at) {
    if (*at > previous) append(*at);  // skips empty documents, which other programs may write
    previous = *at;
  }
  append(last);
}

}  // namespace mpzero::io
