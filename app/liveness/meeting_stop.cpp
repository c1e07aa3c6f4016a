#include "app/liveness/meeting_stop.hpp"

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "base/error.hpp"

namespace mpzero {

MeetingStop::MeetingStop(const StopRequest& stop, std::chrono::duration<double> patience, std::function<void(int)> end)
    : thread_([&stop, patience, end = std::move(end)](const std::stop_token& have_met) {
        constexpr std::chrono::milliseconds kTurn(20);
        std::mutex mutex;
        std::condition_variable_any changed;
        std::unique_lock lock(mutex);
        while (!have_met.stop_requested()) {
          if (stop.requested() && stop.seconds_since() >= patience.count()) {
            return end(stop.is_immediate() ? kInterruptedExitCode : kStoppedExitCode);
          }
          changed.wait_for(lock, have_met, kTurn, [] { return false; });
        }
      }) {}

}  // namespace mpzero
