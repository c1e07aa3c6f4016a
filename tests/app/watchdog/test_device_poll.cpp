#include <ATen/core/Tensor.h>

#include <chrono>
#include <stdexcept>
#include <thread>

#include "app/watchdog/device_poll.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/stub_communicator.hpp"

namespace mpzero {
namespace {

// Only the errors of this communicator are asked for.
class Broken final : public parallel::StubCommunicator {
 public:
  std::optional<std::string> asynchronous_error() override { return "a remote process has exited"; }
};

class BrokenWork final : public parallel::DeviceWork {
 public:
  parallel::CollectiveState state() const override { throw std::runtime_error("the device is gone"); }
};

DevicePoll::Error wait_for_error(const DevicePoll& poll) {
  while (!poll.error()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return *poll.error();
}

}  // namespace

TEST_CASE("reports an asynchronous error of a communicator") {
  parallel::FlightRecorder recorder;
  DevicePoll poll(recorder);
  poll.use_device(at::kCPU);
  CHECK_FALSE(poll.error());
  Broken broken;
  poll.watch({&broken});
  const DevicePoll::Error error = wait_for_error(poll);
  CHECK((error.why == Why::kCommunicatorError && error.text == "a remote process has exited"));
}

TEST_CASE("reports an error of a device") {
  parallel::FlightRecorder recorder;
  DevicePoll poll(recorder);
  auto& sums = recorder.channel("sums");
  sums.queued_on_device(sums.begin("all_reduce", 8), std::make_shared<BrokenWork>());
  poll.use_device(at::kCPU);
  const DevicePoll::Error error = wait_for_error(poll);
  CHECK((error.why == Why::kDeviceError && error.text == "the device is gone"));
}

}  // namespace mpzero
