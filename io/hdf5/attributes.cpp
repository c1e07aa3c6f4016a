#include <algorithm>

#include "base/error.hpp"
#include "io/hdf5/file.hpp"
#include "io/hdf5/header.hpp"
#include "io/hdf5/library.hpp"

namespace mpzero::io::hdf5 {

bool Node::has_attribute(const std::string& name) const {
  const Lock lock;
  const htri_t exists = H5Aexists(handle_.id(), name.c_str());
  if (exists < 0) throw_user_error("cannot look for attribute '{}' on {}: {}", name, where(), reason());
  return exists > 0;
}

size_t Node::attribute_size(const std::string& name) const {
  const Lock lock;
  const Handle attribute(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), &H5Aclose);
  if (!attribute)
    throw_user_error("attribute '{}' is missing on {}: the file is not of the expected kind", name, where());
  const Handle space(H5Aget_space(attribute.id()), &H5Sclose);
  return space ? static_cast<size_t>(std::max<hssize_t>(H5Sget_simple_extent_npoints(space.id()), 0)) : 0;
}

void Node::read_attribute(const std::string& name, Type type, void* out, size_t count) const {
  const Lock lock;
  const size_t size = attribute_size(name);
  if (size != count) throw_user_error("attribute '{}' on {} holds {} values, expected {}", name, where(), size, count);
  const Handle attribute(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), &H5Aclose);
  if (!attribute || H5Aread(attribute.id(), native(type), out) < 0) {
    throw_user_error("cannot read attribute '{}' on {} as a number: {}", name, where(), reason());
  }
}

std::string Node::text_attribute(const std::string& name) const {
  const Lock lock;
  if (attribute_size(name) != 1) throw_user_error("attribute '{}' on {} is not a single text", name, where());
  const Handle attribute(H5Aopen(handle_.id(), name.c_str(), H5P_DEFAULT), &H5Aclose);
  const Handle stored(H5Aget_type(attribute.id()), &H5Tclose);
  if (!stored || H5Tget_class(stored.id()) != H5T_STRING) {
    throw_user_error("attribute '{}' on {} is not a text", name, where());
  }
  if (H5Tis_variable_str(stored.id()) > 0) {
    return read_variable_text(place_of(handle_.id(), ".", where()), file_, name);
  }
  constexpr size_t kMaxBytes = 64 << 20;
  if (H5Tget_size(stored.id()) > kMaxBytes) {
    throw_user_error("attribute '{}' on {} is too long: {} bytes", name, where(), H5Tget_size(stored.id()));
  }
  std::string text(H5Tget_size(stored.id()), '\0');
  if (H5Aread(attribute.id(), stored.id(), text.data()) < 0) {
    throw_user_error("cannot read attribute '{}' on {}: {}", name, where(), reason());
  }
  text.resize(std::min(text.find('\0'), text.size()));
  return text;
}

void Node::write_attribute(const std::string& name, Type type, const void* values, size_t count, bool scalar) {
  const Lock lock;
  if (has_attribute(name)) H5Adelete(handle_.id(), name.c_str());
  const hsize_t extent = count;
  const Handle space(scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &extent, nullptr), &H5Sclose);
  const Handle attribute(H5Acreate2(handle_.id(), name.c_str(), native(type), space.id(), H5P_DEFAULT, H5P_DEFAULT),
                         &H5Aclose);
  if (!attribute || (count > 0 && H5Awrite(attribute.id(), native(type), values) < 0)) {
    throw_not_written(fmt::format("write attribute '{}' on {}", name, where()), file_);
  }
}

void Node::set_attribute(const std::string& name, const std::string& text) {
  const Lock lock;
  if (text.find('\0') != std::string::npos) {
    throw_failure("cannot write attribute '{}' on {}: the text contains a zero byte", name, where());
  }
  if (has_attribute(name)) H5Adelete(handle_.id(), name.c_str());
  // Of variable length, so that the text is stored in the heap: the header that holds attributes is limited to 64 KiB.
  const Handle type(H5Tcopy(H5T_C_S1), &H5Tclose);
  H5Tset_size(type.id(), H5T_VARIABLE);
  H5Tset_cset(type.id(), H5T_CSET_UTF8);
  const Handle space(H5Screate(H5S_SCALAR), &H5Sclose);
  const Handle attribute(H5Acreate2(handle_.id(), name.c_str(), type.id(), space.id(), H5P_DEFAULT, H5P_DEFAULT),
                         &H5Aclose);
  const char* const pointer = text.c_str();
  if (!attribute || H5Awrite(attribute.id(), type.id(), static_cast<const void*>(&pointer)) < 0) {
    throw_not_written(fmt::format("write attribute '{}' on {}", name, where()), file_);
  }
}

}  // namespace mpzero::io::hdf5
