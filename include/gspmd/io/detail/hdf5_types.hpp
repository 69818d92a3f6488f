// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "gspmd/detail/ir/types.hpp"
#include "gspmd/error.hpp"
#include "gspmd/io/detail/hdf5_library.hpp"
#include "gspmd/io/detail/stored_array.hpp"

/// Element types in HDF5 files. They are the types that h5py writes, if it has the type.
namespace gspmd::detail {

inline hdf5_object hdf5_copy_of(hid_t type) { return {H5Tcopy(type), H5Tclose, "a type cannot be made"}; }

/// Returns the type of a 2-byte float. HDF5 can describe the type but has no name for it.
inline hdf5_object hdf5_short_float(bool high_bytes_first, std::size_t mantissa) {
  auto type = hdf5_copy_of(high_bytes_first ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
  const auto exponent = 15 - mantissa;
  check_hdf5(H5Tset_fields(type.id(), 15, mantissa, exponent, 0, mantissa), "a type cannot be made");
  check_hdf5(H5Tset_size(type.id(), 2), "a type cannot be made");
  check_hdf5(H5Tset_ebias(type.id(), (std::size_t{1} << (exponent - 1)) - 1), "a type cannot be made");
  return type;
}
/// Returns the type of h5py's bool: an enumeration of bytes.
inline hdf5_object hdf5_bool(bool high_bytes_first) {
  hdf5_object type(H5Tenum_create(high_bytes_first ? H5T_STD_I8BE : H5T_STD_I8LE), H5Tclose, "a type cannot be made");
  std::int8_t value = 0;
  for (const char* const name : {"FALSE", "TRUE"}) {
    check_hdf5(H5Tenum_insert(type.id(), name, &value), "a type cannot be made");
    ++value;
  }
  return type;
}
/// Returns the type of h5py's complex: a compound of `r` and `i`.
inline hdf5_object hdf5_complex(hid_t part) {
  const auto size = H5Tget_size(part);
  hdf5_object type(H5Tcreate(H5T_COMPOUND, 2 * size), H5Tclose, "a type cannot be made");
  check_hdf5(H5Tinsert(type.id(), "r", 0, part), "a type cannot be made");
  check_hdf5(H5Tinsert(type.id(), "i", size, part), "a type cannot be made");
  return type;
}

/// Returns the type of elements in a file. An own type is an opaque type.
inline hdf5_object hdf5_type(dtype type, bool high_bytes_first = false) {
  const auto one_of = [&](hid_t low, hid_t high) { return hdf5_copy_of(high_bytes_first ? high : low); };
  switch (type) {
    case dtype::f32: return one_of(H5T_IEEE_F32LE, H5T_IEEE_F32BE);
    case dtype::f64: return one_of(H5T_IEEE_F64LE, H5T_IEEE_F64BE);
    case dtype::s8: return one_of(H5T_STD_I8LE, H5T_STD_I8BE);
    case dtype::s16: return one_of(H5T_STD_I16LE, H5T_STD_I16BE);
    case dtype::s32: return one_of(H5T_STD_I32LE, H5T_STD_I32BE);
    case dtype::s64: return one_of(H5T_STD_I64LE, H5T_STD_I64BE);
    case dtype::u8: return one_of(H5T_STD_U8LE, H5T_STD_U8BE);
    case dtype::u32: return one_of(H5T_STD_U32LE, H5T_STD_U32BE);
    case dtype::u64: return one_of(H5T_STD_U64LE, H5T_STD_U64BE);
    case dtype::f16: return hdf5_short_float(high_bytes_first, 10);
    case dtype::bf16: return hdf5_short_float(high_bytes_first, 7);
    case dtype::pred: return hdf5_bool(high_bytes_first);
    case dtype::c64: return hdf5_complex(hdf5_type(dtype::f32, high_bytes_first).id());
    case dtype::c128: return hdf5_complex(hdf5_type(dtype::f64, high_bytes_first).id());
  }
  return {H5Tcreate(H5T_OPAQUE, static_cast<std::size_t>(bytes_of(type))), H5Tclose, "a type cannot be made"};
}

/// Returns true if a type in a file is `type` in one byte order. The tag of an opaque type is ignored, because other
/// programs write any tag.
inline bool is_hdf5_type(hid_t found, dtype type, bool high_bytes_first) {
  if (is_own(type))
    return !high_bytes_first && H5Tget_class(found) == H5T_OPAQUE &&
           H5Tget_size(found) == static_cast<std::size_t>(bytes_of(type));
  return H5Tequal(found, hdf5_type(type, high_bytes_first).id()) > 0;
}

/// Returns `f64`, `f64 with high bytes first`, or for other types `a string`, `a compound of 24 bytes`.
inline std::string hdf5_type_text(hid_t found) {
  for (std::size_t k = 0; k < element_type_count; ++k)
    for (const bool high_bytes_first : {false, true})
      if (const auto type = static_cast<dtype>(k); is_hdf5_type(found, type, high_bytes_first))
        return name_of(type) + std::string(high_bytes_first ? " with high bytes first" : "");
  const auto sized = [&](const char* name) { return name + std::string(" of ") + std::to_string(H5Tget_size(found)) + " bytes"; };
  switch (H5Tget_class(found)) {
    case H5T_STRING: return "a string";
    case H5T_OPAQUE: return sized("an opaque type");
    case H5T_COMPOUND: return sized("a compound");
    case H5T_ENUM: return sized("an enumeration");
    case H5T_INTEGER: return sized("an integer");
    case H5T_FLOAT: return sized("a float");
    default: return sized("a type");
  }
}

}  // namespace gspmd::detail
