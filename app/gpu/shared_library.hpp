#pragma once

#include <dlfcn.h>

#include <memory>
#include <string>
#include <vector>

namespace mpzero::doctor {

// A shared library that may be missing on this host.
class SharedLibrary {
 public:
  // Opens the first library in `names` that the loader can open. If no library can be opened, reason() returns the
  // first error.
  explicit SharedLibrary(const std::vector<std::string>& names) {
    for (const std::string& library : names) {
      handle_.reset(dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
      if (handle_) return;
      const char* error = dlerror();
      if (reason_.empty()) reason_ = error == nullptr ? library + " cannot be loaded" : error;
    }
  }

  explicit operator bool() const { return handle_ != nullptr; }
  const std::string& reason() const { return reason_; }

  // Returns the function `name` with type `Function`; nullptr if the library or the function is missing.
  template <typename Function>
  Function* function(const char* name) const {
    return handle_ ? reinterpret_cast<Function*>(dlsym(handle_.get(), name)) : nullptr;
  }

 private:
  struct Close {
    void operator()(void* library) const { dlclose(library); }
  };
  std::unique_ptr<void, Close> handle_;
  std::string reason_;
};

}  // namespace mpzero::doctor
