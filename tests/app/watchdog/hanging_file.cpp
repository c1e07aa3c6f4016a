// Preloaded into mpzero by tests/e2e: a file system that does not respond. Opening a file with the name in
// HANGING_FILE, or whose path contains HANGING_PATH, never ends; before that, an empty file with the name in
// HANGING_SEEN and the process id says so.

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void hang_at(const char* path) {
  const char* wanted = std::getenv("HANGING_FILE");
  const char* part = std::getenv("HANGING_PATH");
  const char* slash = std::strrchr(path, '/');
  const bool is_wanted = wanted != nullptr && std::strcmp(slash == nullptr ? path : slash + 1, wanted) == 0;
  if (!is_wanted && (part == nullptr || std::strstr(path, part) == nullptr)) return;
  const char* seen = std::getenv("HANGING_SEEN");
  const std::string mark = std::string(seen == nullptr ? "" : seen) + std::to_string(getpid());
  close(next<int(const char*, mode_t)>("creat")(mark.c_str(), 0600));
  while (true) pause();
}

mode_t mode_in(int flags, std::va_list arguments) {
  return (flags & (O_CREAT | O_TMPFILE)) != 0 ? static_cast<mode_t>(va_arg(arguments, int)) : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  hang_at(path);
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  hang_at(path);
  return next<int(const char*, int, ...)>("open64")(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
  std::va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = mode_in(flags, arguments);
  va_end(arguments);
  hang_at(path);
  return next<int(int, const char*, int, ...)>("openat")(folder, path, flags, mode);
}
FILE* fopen(const char* path, const char* mode) {
  hang_at(path);
  return next<FILE*(const char*, const char*)>("fopen")(path, mode);
}
FILE* fopen64(const char* path, const char* mode) {
  hang_at(path);
  return next<FILE*(const char*, const char*)>("fopen64")(path, mode);
}

}  // extern "C"
