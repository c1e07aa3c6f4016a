// Compiles fmt's non-template functions once. The torch wheel contains fmt's headers but not its library. With
// FMT_HEADER_ONLY, every source file would compile these functions again, which takes longer than compiling the rest of
// most files.

#include <fmt/format-inl.h>

#include <locale>

FMT_BEGIN_NAMESPACE

// Required by fmt/chrono.h.
template FMT_API locale_ref::locale_ref(const std::locale& loc);
template FMT_API auto locale_ref::get<std::locale>() const -> std::locale;

namespace detail {

// Definitions for the `extern template` declarations in fmt/format.h. Only the char versions, because mpzero does not
// format wide characters.
template FMT_API auto thousands_sep_impl<char>(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
// Declared in fmt's public headers, but defined only in fmt/format-inl.h.
template FMT_API auto dragonbox::to_decimal(float x) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double x) noexcept -> dragonbox::decimal_fp<double>;

}  // namespace detail
FMT_END_NAMESPACE
