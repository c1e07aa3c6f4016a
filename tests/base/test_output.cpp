#include <fcntl.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "base/output.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

namespace {

// stdout and stderr of this process are `descriptor` while `work` runs.
void with_output(int descriptor, const std::function<void()>& work) {
  const std::array<int, 2> before{::dup(STDOUT_FILENO), ::dup(STDERR_FILENO)};
  ::dup2(descriptor, STDOUT_FILENO);
  ::dup2(descriptor, STDERR_FILENO);
  work();
  ::dup2(before[0], STDOUT_FILENO);
  ::dup2(before[1], STDERR_FILENO);
  for (const int copy : before) ::close(copy);
}

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 4096> block{};
  for (ssize_t n = 0; (n = ::read(descriptor, block.data(), block.size())) > 0;) {
    text.append(block.data(), static_cast<size_t>(n));
  }
  return text;
}

// What `work` writes to a pipe.
std::string piped(const std::function<void()>& work) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  std::string text;
  std::thread reader([&] { text = read_all(ends[0]); });
  with_output(ends[1], work);
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  return text;
}

// The lines that a terminal shows: a carriage return goes to the begin of the line, "\033[K" erases what follows.
std::vector<std::string> shown(const std::string& text) {
  std::vector<std::string> lines(1);
  size_t column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 3, "\033[K") == 0) {
      lines.back().resize(column);
      i += 2;
    } else if (text[i] == '\033') {
      i = text.find_first_of("lh", i);
    } else if (text[i] == '\r') {
      column = 0;
    } else if (text[i] == '\n') {
      lines.emplace_back();
      column = 0;
    } else {
      if (column >= lines.back().size()) lines.back().resize(column + 1);
      lines.back()[column++] = text[i];
    }
  }
  return lines;
}

void draw_and_print() {
  ProgressBar bar("Training", 3);
  for (int step = 1; step <= 3; ++step) {
    bar.update(step, "loss 1.5");
    print_out("Batch {}\n", step);
    print_warning("slow");
    bar.update(3);
  }
}

void check_lines_are_whole(const std::string& text) {
  const std::vector<std::string> lines = shown(text);
  REQUIRE(lines.size() == 8);
  for (size_t step = 0; step < 3; ++step) {
    CHECK(lines[2 * step] == "Batch " + std::to_string(step + 1));
    CHECK(lines[2 * step + 1] == "mpzero: warning: slow");
  }
  CHECK(lines[6].starts_with("Training 100% "));
}

}  // namespace

TEST_CASE("on a terminal, no line is appended to the progress bar") {
  int terminal = -1, program = -1;
  REQUIRE(::openpty(&terminal, &program, nullptr, nullptr, nullptr) == 0);
  std::string text;
  std::thread reader([&] { text = read_all(terminal); });
  with_output(program, draw_and_print);
  ::close(program);
  reader.join();
  ::close(terminal);
  check_lines_are_whole(text);
}

TEST_CASE("through a launcher's pipe to a terminal, no line is appended to the progress bar") {
  ::setenv("MPZERO_TERMINAL", "40", 1);
  check_lines_are_whole(piped(draw_and_print));
  // The bar of another rank may be on the terminal.
  CHECK(piped([] { print_err("failed\n"); }) == "\r\033[Kfailed\n");
  ::unsetenv("MPZERO_TERMINAL");
  CHECK(piped([] { print_err("failed\n"); }) == "failed\n");
}

TEST_CASE("a progress bar with a long note stays within a narrow terminal") {
  ::setenv("MPZERO_TERMINAL", "40", 1);
  const std::vector<std::string> lines = shown(piped([] {
    ProgressBar bar("Training", 3);
    bar.update(3, "é 1.5, 1234.5 tokens/s, 38.2% of the peak");
  }));
  ::unsetenv("MPZERO_TERMINAL");
  REQUIRE(!lines.empty());
  const std::string& line = lines.front();
  CHECK((line.starts_with("Training 100% ") && line.ends_with("é")));
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  CHECK(std::count_if(line.begin(), line.end(), begins_character) == 40 - 3);
}

TEST_CASE("without a terminal, progress is printed in lines with the elapsed time") {
  const std::string text = piped([] {
    ProgressBar bar("Training", 10);
    bar.update(4);
    bar.update(10, "loss 1.5");
  });
  CHECK(text == "Training: 4 of 10 (40%)\nTraining: 10 of 10 (100%), 0:00 elapsed, loss 1.5\n");
}

TEST_CASE("lines of several threads are not interleaved") {
  const std::string line(300, 'x');
  const std::string text = piped([&] {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int n = 0; n < 200; ++n) print_out("{}\n", line);
      });
    }
  });
  std::string expected;
  for (int n = 0; n < 800; ++n) expected += line + "\n";
  CHECK(text == expected);
}

TEST_CASE("a closed, full or broken output loses text without ending the process") {
  ignore_broken_pipes();
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  ::close(ends[0]);
  int terminal = -1, closed_terminal = -1;
  REQUIRE(::openpty(&terminal, &closed_terminal, nullptr, nullptr, nullptr) == 0);
  ::close(terminal);
  const int read_only = ::open("/dev/null", O_RDONLY);
  for (const int descriptor : {ends[1], closed_terminal, read_only, ::open("/dev/full", O_WRONLY)}) {
    with_output(descriptor, draw_and_print);
    ::close(descriptor);
  }
  // A command whose product is its output is not successful then.
  CHECK_THROWS_AS(check_stdout(), Failure);
}
