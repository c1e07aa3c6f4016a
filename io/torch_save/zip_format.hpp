#pragma once

#include <cstdint>

// Constants and fixed-size headers of ZIP archives (APPNOTE.TXT 6.3.10). All numbers are little-endian.
namespace mpzero::io::zip {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kCentralSignature = 0x02014b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kEnd64LocatorSignature = 0x07064b50;
inline constexpr uint16_t kZip64Field = 0x0001;
// ID of the extra field that torch uses to align records.
inline constexpr uint16_t kPaddingField = 0x4246;
inline constexpr uint16_t kVersion = 45;  // the first version with ZIP64
inline constexpr uint16_t kUtf8Names = 1U << 11;
inline constexpr uint16_t kStored = 0;
// Marker of a value that is stored in the ZIP64 extra field.
inline constexpr uint32_t kIn64 = 0xFFFFFFFF;
inline constexpr uint16_t kIn64Short = 0xFFFF;
inline constexpr int64_t kMaxCommentBytes = 0xFFFF;

#pragma pack(push, 1)
struct LocalHeader {
  uint32_t signature = kLocalSignature;
  uint16_t version_needed = kVersion;
  uint16_t flags = kUtf8Names;
  uint16_t method = kStored;
  uint16_t time = 0;
  uint16_t date = 0x21;  // 1980-01-01, so that files do not depend on the save time
  uint32_t crc32 = 0;
  uint32_t compressed_size = 0;
  uint32_t size = 0;
  uint16_t name_bytes = 0;
  uint16_t extra_bytes = 0;
};
static_assert(sizeof(LocalHeader) == 30);

struct CentralHeader {
  uint32_t signature = kCentralSignature;
  uint16_t version_made_by = kVersion;
  uint16_t version_needed = kVersion;
  uint16_t flags = kUtf8Names;
  uint16_t method = kStored;
  uint16_t time = 0;
  uint16_t date = 0x21;
  uint32_t crc32 = 0;
  uint32_t compressed_size = 0;
  uint32_t size = 0;
  uint16_t name_bytes = 0;
  uint16_t extra_bytes = 0;
  uint16_t comment_bytes = 0;
  uint16_t disk = 0;
  uint16_t internal_attributes = 0;
  uint32_t external_attributes = 0;
  uint32_t header_offset = 0;
};
static_assert(sizeof(CentralHeader) == 46);

struct EndRecord {
  uint32_t signature = kEndSignature;
  uint16_t disk = 0;
  uint16_t directory_disk = 0;
  uint16_t records_on_disk = 0;
  uint16_t records = 0;
  uint32_t directory_bytes = 0;
  uint32_t directory_offset = 0;
  uint16_t comment_bytes = 0;
};
static_assert(sizeof(EndRecord) == 22);

struct End64Record {
  uint32_t signature = kEnd64Signature;
  uint64_t remaining_bytes = 44;
  uint16_t version_made_by = kVersion;
  uint16_t version_needed = kVersion;
  uint32_t disk = 0;
  uint32_t directory_disk = 0;
  uint64_t records_on_disk = 0;
  uint64_t records = 0;
  uint64_t directory_bytes = 0;
  uint64_t directory_offset = 0;
};
static_assert(sizeof(End64Record) == 56);

struct End64Locator {
  uint32_t signature = kEnd64LocatorSignature;
  uint32_t disk = 0;
  uint64_t end64_offset = 0;
  uint32_t disks = 1;
};
static_assert(sizeof(End64Locator) == 20);

struct FieldHeader {
  uint16_t id = 0;
  uint16_t bytes = 0;
};
static_assert(sizeof(FieldHeader) == 4);
#pragma pack(pop)

}  // namespace mpzero::io::zip
