#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/process_group.hpp"

// Typed collectives over the control plane. All ranks must call the same collectives in the same order, with values of
// the same type.
//
//   all_gather(group, value)   the values of all ranks, in rank order
//   broadcast(group, value)    the value of rank 0
//   min, max, sum(group, x)    reductions in rank order, bitwise equal on all ranks
//   any, all(group, bool)      logical OR and AND over all ranks
//
// Supported types are trivially copyable types (sent as bytes), std::string, std::vector, std::optional, std::pair and
// std::tuple of supported types, and structs with a static fields(value) that returns their members with std::tie().
// Each collective performs one ProcessGroup::all_gather(), and throws Failure with the call, the source line and the
// sending rank if a message does not match the type.
namespace mpzero {

// The caller's source location, as a default argument: `CallSite site = CallSite::here()`. Replaces
// std::source_location, which clang 14 with gcc 12's standard library (Debian 12) lacks.
struct CallSite {
  static constexpr CallSite here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {.file = file, .line = line};
  }

  const char* file;
  int line;
};

namespace collectives {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};

template <class T>
struct IsTuple : std::false_type {};
template <class... Ts>
struct IsTuple<std::tuple<Ts...>> : std::true_type {};
template <class A, class B>
struct IsTuple<std::pair<A, B>> : std::true_type {};

// Types that are sent as bytes. Pointers and views (std::string_view, std::span) are excluded because they are invalid
// on other ranks. Pointers in members of structs are not detected.
template <class T>
concept SentAsBytes =
    std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_array_v<T> && !std::is_same_v<T, bool> &&
    !IsOptional<T>::value && !IsTuple<T>::value && !std::ranges::enable_borrowed_range<T>;

// A rank's message, or one of its fields.
struct Message {
  std::string_view bytes;
  const char* call;
  size_t rank;
  CallSite site;

  // Throws Failure: "CALL (FILE:LINE): rank R sent WHAT".
  [[noreturn]] void refuse(const std::string& what) const;
  void check_size(size_t size) const;
  // Removes the first field from `bytes` and returns it.
  Message take_field();
};

void append_field(std::string& message, const std::string& field);

template <class T>
std::string to_message(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "1" : "0";
  } else if constexpr (SentAsBytes<T>) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
  } else if constexpr (IsVector<T>::value) {
    std::string message;
    for (const typename T::value_type& element : value) append_field(message, to_message(element));
    return message;
  } else if constexpr (IsOptional<T>::value) {
    std::string message;
    if (value) append_field(message, to_message(*value));
    return message;
  } else if constexpr (IsTuple<T>::value) {
    std::string message;
    std::apply([&](const auto&... fields) { (append_field(message, to_message(fields)), ...); }, value);
    return message;
  } else {
    return to_message(T::fields(value));
  }
}

template <class T>
T from_message(Message message);

// Reads one field of `message` into each element of `values`, a tuple of values or references.
void read_fields(Message message, auto&& values) {
  std::apply(
      [&](auto&... fields) { ((fields = from_message<std::decay_t<decltype(fields)>>(message.take_field())), ...); },
      values);
  message.check_size(0);
}

template <class T>
T from_message(Message message) {
  if constexpr (std::is_same_v<T, std::string>) {
    return T(message.bytes);
  } else if constexpr (std::is_same_v<T, bool>) {
    if (message.bytes != "0" && message.bytes != "1") message.refuse("a malformed bool");
    return message.bytes == "1";
  } else if constexpr (SentAsBytes<T>) {
    message.check_size(sizeof(T));
    T value;
    std::memcpy(&value, message.bytes.data(), sizeof value);
    return value;
  } else if constexpr (IsVector<T>::value) {
    T values;
    while (!message.bytes.empty()) values.push_back(from_message<typename T::value_type>(message.take_field()));
    return values;
  } else if constexpr (IsOptional<T>::value) {
    if (message.bytes.empty()) return std::nullopt;
    T value = from_message<typename T::value_type>(message.take_field());
    message.check_size(0);
    return value;
  } else if constexpr (IsTuple<T>::value) {
    T values;
    read_fields(message, values);
    return values;
  } else {
    T value;
    read_fields(message, T::fields(value));
    return value;
  }
}

template <class T>
std::vector<T> gather(ProcessGroup& group, const T& value, const char* call, CallSite site) {
  const std::vector<std::string> messages = group.all_gather(to_message(value));
  std::vector<T> values;
  values.reserve(messages.size());
  for (const std::string& message : messages) {
    values.push_back(from_message<T>({.bytes = message, .call = call, .rank = values.size(), .site = site}));
  }
  return values;
}

}  // namespace collectives

template <class T>
std::vector<T> all_gather(ProcessGroup& group, const T& value, CallSite site = CallSite::here()) {
  return collectives::gather(group, value, "all_gather", site);
}

template <class T>
T broadcast(ProcessGroup& group, const T& value, CallSite site = CallSite::here()) {
  const std::vector<std::string> messages =
      group.all_gather(group.rank() == 0 ? collectives::to_message(value) : std::string());
  return collectives::from_message<T>({.bytes = messages.front(), .call = "broadcast", .rank = 0, .site = site});
}

template <class T>
T min(ProcessGroup& group, const T& value, CallSite site = CallSite::here()) {
  return std::ranges::min(collectives::gather(group, value, "min", site));
}

template <class T>
T max(ProcessGroup& group, const T& value, CallSite site = CallSite::here()) {
  return std::ranges::max(collectives::gather(group, value, "max", site));
}

template <class T>
T sum(ProcessGroup& group, const T& value, CallSite site = CallSite::here()) {
  T total{};
  for (const T& of_rank : collectives::gather(group, value, "sum", site)) total += of_rank;
  return total;
}

inline bool any(ProcessGroup& group, bool value, CallSite site = CallSite::here()) {
  return std::ranges::count(collectives::gather(group, value, "any", site), true) > 0;
}

inline bool all(ProcessGroup& group, bool value, CallSite site = CallSite::here()) {
  return std::ranges::count(collectives::gather(group, value, "all", site), false) == 0;
}

}  // namespace mpzero
