// The functions of fmt that need not be templates, compiled once. The torch wheel has fmt's headers and not its
// library; header-only (FMT_HEADER_ONLY) every file compiles them again, which takes longer than most files' own code.

#include <fmt/format-inl.h>

#include <locale>

FMT_BEGIN_NAMESPACE

// For fmt/chrono.h.
template FMT_API locale_ref::locale_ref(const std::locale& loc);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;

namespace detail {

// What fmt/format.h declares `extern template`, for char. Nothing here formats wide characters.
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
// Defined in fmt/format-inl.h alone, and declared in the headers that everyone includes.
template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace detail
FMT_END_NAMESPACE
