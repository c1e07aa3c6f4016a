#include "app/top/top_command.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <set>

#include "app/http/http_exchange.hpp"
#include "app/top/node_metrics.hpp"
#include "app/top/run_frame.hpp"
#include "app/top/run_reader.hpp"
#include "base/error.hpp"
#include "base/host_name.hpp"
#include "base/output.hpp"
#include "base/text/times.hpp"
#include "io/files/text_lines.hpp"

namespace mpzero {
namespace {

namespace fs = std::filesystem;
using std::chrono::steady_clock;

constexpr const char* kUsage =
    "mpzero top RUN|JOB [--once] [--interval SECONDS]\n"
    "\n"
    "Shows a run on the terminal: step, loss, throughput, where the time goes, each rank's own time and, with\n"
    "--metrics_port, hosts and GPUs. Ctrl-C ends it; the run does not notice.\n"
    "\n"
    "  RUN                 the run's --checkpoint_dir, or its metrics file\n"
    "  JOB                 the number of a Slurm job of train.sbatch, 1234 or 1234_5\n"
    "  --once              print one view and end, as where stdout is no terminal\n"
    "  --interval SECONDS  between two views (default: 2)\n";

constexpr size_t kMostNodes = 32;
constexpr std::chrono::milliseconds kPatience(800);
constexpr unsigned kOk = 200;
constexpr uint64_t kMostBytesOfMetrics = uint64_t{4} << 20;
constexpr int kPlainColumns = 80, kPlainRows = 60;
constexpr const char* kLogLine = "mpzero: Metrics are in ";  // sbatch/train.sbatch prints it

struct Arguments {
  std::string run;
  bool once = false;
  double interval = 2;
};

Arguments parse(const std::vector<std::string>& words) {
  Arguments arguments;
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i];
    std::optional<std::string> value;
    if (const size_t equals = word.find('='); word.starts_with("--") && equals != std::string::npos) {
      value = word.substr(equals + 1);
      word = word.substr(0, equals);
    }
    if (word == "--once") {
      arguments.once = true;
    } else if (word == "--interval") {
      if (!value && i + 1 < words.size()) value = words[++i];
      const std::string text = value.value_or("");
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), arguments.interval);
      if (error != std::errc() || end != text.data() + text.size() || !(arguments.interval >= 0.1) ||
          arguments.interval > 3600) {
        throw_user_error("--interval '{}': give seconds from 0.1 to 3600", text);
      }
    } else if (word.starts_with("--")) {
      throw_user_error("{} is no flag of mpzero top, which has --once and --interval", word);
    } else if (!arguments.run.empty()) {
      throw_user_error("mpzero top shows one run, and '{}' and '{}' are given", arguments.run, word);
    } else {
      arguments.run = word;
    }
  }
  if (arguments.run.empty()) throw_user_error("no run is given: mpzero top CHECKPOINT_DIR");
  return arguments;
}

// What `scontrol show job` says of a job's log; empty: it does not know the job.
std::string log_of_job(const std::string& number) {
  const std::string command = "scontrol show job " + number + " 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::array<char, 4096> line{};
  while (pipe && fgets(line.data(), line.size(), pipe.get()) != nullptr) {
    std::string text(line.data());
    if (const size_t at = text.find("StdOut="); at != std::string::npos) {
      text = text.substr(at + 7);
      return text.substr(0, text.find('\n'));
    }
  }
  return "";
}

// The metrics file that the log of a job of train.sbatch names.
fs::path metrics_of_job(const std::string& number) {
  const std::string log = log_of_job(number);
  if (log.empty()) {
    throw_user_error("'{}' is no folder, and Slurm does not show a job of this number: name the --checkpoint_dir",
                     number);
  }
  std::string metrics;
  io::read_lines(log, [&](std::string_view line, bool) {
    if (line.starts_with(kLogLine)) metrics = line.substr(std::string_view(kLogLine).size());
  });
  if (metrics.empty()) {
    throw_user_error(
        "the log of job {}, {}, does not yet say where its metrics are: try again when the job trains, "
        "or name the --checkpoint_dir",
        number, log);
  }
  return metrics;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 16 && text.find_first_not_of("0123456789") == std::string::npos;
}

// "1234", or "1234_5" of a job array.
bool is_job(const std::string& text) {
  const std::string_view job(text);
  const size_t at = job.find('_');
  return is_number(job.substr(0, at)) && (at == std::string::npos || is_number(job.substr(at + 1)));
}

fs::path find_run(const std::string& run) {
  std::error_code error;
  if (is_job(run) && !fs::exists(run, error)) return metrics_of_job(run);
  return run;
}

// The endpoints of a run's nodes.
class Nodes {
 public:
  std::vector<NodeView> look(const RunView& run) {
    if (run.metrics_port == 0 || !run.status.empty()) return {};
    std::set<std::string> hosts(run.hosts.begin(), run.hosts.end());
    NodeView others;
    if (hosts.size() > kMostNodes) {
      others.host = fmt::format("{} more hosts", hosts.size() - kMostNodes);
      others.problem = "not asked";
    }
    while (hosts.size() > kMostNodes) hosts.erase(std::prev(hosts.end()));
    std::map<std::string, std::future<std::string>> pages;
    for (const std::string& host : hosts) {
      const std::string address = host == host_name() ? own_address(run.metrics_address) : host;
      pages[host] =
          std::async(std::launch::async, [address, port = run.metrics_port] { return page_of(address, port); });
    }
    const auto now = steady_clock::now();
    std::vector<NodeView> views;
    std::map<std::string, MetricSamples> samples;
    for (auto& [host, page] : pages) {
      try {
        samples[host] = samples_of(run.run, page.get());
        const double seconds = std::chrono::duration<double>(now - last_).count();
        views.push_back(view_of(host, before_[host], samples[host], before_[host].empty() ? 0 : seconds));
      } catch (const Error& error) {
        NodeView view;
        view.host = host;
        samples.erase(host);
        view.problem = fmt::format("port {} cannot be read: {}", run.metrics_port, error.what());
        views.push_back(view);
      }
    }
    if (!others.host.empty()) views.push_back(others);
    before_ = std::move(samples);
    last_ = now;
    return views;
  }

 private:
  // Where this host's endpoint answers that listens on --metrics_address.
  static std::string own_address(const std::string& address) {
    if (address == "::") return "::1";
    return address.empty() || address == "0.0.0.0" ? "127.0.0.1" : address;
  }
  static std::string page_of(const std::string& host, int64_t port) {
    HttpExchange exchange({.host = host,
                           .port = std::to_string(port),
                           .path = "/metrics",
                           .headers = {},
                           .most_bytes = kMostBytesOfMetrics});
    HttpAnswer answer = exchange.run(kPatience);
    if (answer.status != kOk) throw_failure("it answers with status {}", answer.status);
    return std::move(answer.text);
  }
  // Another run may have opened the port since this one has failed to, or has ended.
  static MetricSamples samples_of(const std::string& run, const std::string& page) {
    MetricSamples samples = parse_samples(page);
    const std::string answers = run_of(samples);
    if (answers.empty()) throw_failure("no run answers there");
    if (answers != run) throw_failure("run {} answers there", answers);
    return samples;
  }

  std::map<std::string, MetricSamples> before_;
  steady_clock::time_point last_;
};

// The cursor is hidden while this lives.
class Screen {
 public:
  Screen() { write_output(Output::kStdout, "\033[?25l\033[2J"); }
  ~Screen() { write_output(Output::kStdout, "\033[?25h\n"); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::vector<std::string>& lines) {
    std::string text = "\033[H";
    for (size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\n") + lines[i] + "\033[K";
    text += "\033[J";
    write_output(Output::kStdout, text);
  }
};

// The signals that end the view are taken by wait_for_end(), so that the cursor comes back.
sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

// True: a signal has ended the view.
bool wait_for_end(const sigset_t& signals, double seconds) {
  const auto whole = static_cast<time_t>(seconds);
  const timespec limit{.tv_sec = whole, .tv_nsec = static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
  return sigtimedwait(&signals, nullptr, &limit) > 0;
}

}  // namespace

int run_top_command(const std::vector<std::string>& words) {
  if (std::any_of(words.begin(), words.end(), [](const auto& word) { return word == "--help" || word == "-h"; })) {
    write_output(Output::kStdout, kUsage);
    return 0;
  }
  const Arguments arguments = parse(words);
  RunReader reader(find_run(arguments.run));
  Nodes nodes;
  winsize size{};
  if (arguments.once || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    const RunView& run = reader.update();
    for (const std::string& line : run_frame(run, nodes.look(run), seconds_since_1970(), kPlainColumns, kPlainRows)) {
      print_out("{}\n", line);
    }
    return 0;
  }
  const sigset_t signals = ending_signals();
  // Threads that are started later inherit it.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  Screen screen;
  while (true) {
    const RunView& run = reader.update();
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
    screen.draw(run_frame(run, nodes.look(run), seconds_since_1970(), size.ws_col, size.ws_row));
    if (!run.status.empty() || wait_for_end(signals, arguments.interval)) return 0;
  }
}

}  // namespace mpzero
