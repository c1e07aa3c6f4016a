#include <fmt/format.h>

#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/bytes/checksum.hpp"
#include "io/data/token_dataset.hpp"

// read_token_file FILE SEQ_LENGTH: reads every window as the trainer does and prints its findings on one line. Exits
// with status 2 and one sentence if the file is refused, 1 for any other failure.
int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::invalid_argument("read_token_file FILE SEQ_LENGTH");
    const mpzero::io::TokenDataset dataset(argv[1], std::stoll(argv[2]));
    std::vector<int64_t> tokens(static_cast<size_t>(dataset.seq_length() + 1));
    mpzero::io::StreamingChecksum seen;
    for (int64_t window = 0; window < dataset.num_windows(); ++window) {
      dataset.read_windows(std::span(&window, 1), int64_t{1} << 32, tokens);
      seen.add(std::as_bytes(std::span(tokens)));
    }
    fmt::print("{} tokens, {} documents, vocab_size {}, eos {}, tokenizer {}, source {}, windows {}, content {}\n",
               dataset.num_tokens(), dataset.num_documents(), dataset.vocab_size(), dataset.eos_token_id(),
               dataset.tokenizer(), dataset.source(), mpzero::io::to_hex(seen.value()), dataset.content_hash());
    return 0;
  } catch (const mpzero::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
