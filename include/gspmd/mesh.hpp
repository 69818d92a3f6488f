// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>

#include <boost/mp11/algorithm.hpp>
#include <boost/mp11/list.hpp>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/fixed_string.hpp"

namespace gspmd {

/// One axis of a device mesh: a name and the number of devices along it.
template <fixed_string Name, int Size>
struct axis {
  static_assert(Size >= 1, "gspmd: mesh: an axis has at least one device");
  static_assert(!Name.view().empty() && Name.view().size() <= detail::max_name, "gspmd: mesh: an axis name has 1 to 31 characters");
  static_assert(detail::is_axis_name(Name.view()), "gspmd: mesh: an axis name holds letters, digits and _ only");
  static constexpr std::string_view name = Name.view();
  static constexpr int size = Size;
};

/// The device ids of a mesh, row-major over its axes; the last argument of `mesh`. Without it they count from 0.
template <int... Ids>
struct device_order {};

namespace detail {

template <class T>
inline constexpr bool is_axis = false;
template <fixed_string Name, int Size>
inline constexpr bool is_axis<axis<Name, Size>> = true;

template <class Order>
struct order_table {
  static constexpr const std::int32_t* ids = nullptr;
  static constexpr const std::int32_t* positions = nullptr;
  static constexpr bool fits(std::int64_t) { return true; }
};
template <int... Ids>
struct order_table<device_order<Ids...>> {
  static constexpr std::int32_t id_list[sizeof...(Ids)] = {Ids...};
  static constexpr bool fits(std::int64_t devices) {
    if (devices != static_cast<std::int64_t>(sizeof...(Ids))) return false;
    std::array<bool, sizeof...(Ids)> seen{};
    for (const auto id : id_list) {
      if (id < 0 || id >= devices || seen[static_cast<std::size_t>(id)]) return false;
      seen[static_cast<std::size_t>(id)] = true;
    }
    return true;
  }
  static constexpr auto inverse = [] {
    std::array<std::int32_t, sizeof...(Ids)> result{};
    for (std::size_t i = 0; i < sizeof...(Ids); ++i)
      if (id_list[i] >= 0 && id_list[i] < static_cast<std::int32_t>(sizeof...(Ids)))
        result[static_cast<std::size_t>(id_list[i])] = static_cast<std::int32_t>(i);
    return result;
  }();
  static constexpr const std::int32_t* ids = id_list;
  static constexpr const std::int32_t* positions = inverse.data();
};

}  // namespace detail

/// A logical device mesh (GSPMD 3.1): named axes, major to minor, and optionally the order of the device ids.
///
///     using pod = mesh<axis<"data", 2>, axis<"model", 4>>;
///     static_assert(pod::device_count == 8);
///     using ring = mesh<axis<"x", 2>, axis<"y", 2>, device_order<0, 1, 3, 2>>;
template <class... Parts>
struct mesh {
 private:
  template <class T>
  using is_axis_part = boost::mp11::mp_bool<detail::is_axis<T>>;
  using axes = boost::mp11::mp_copy_if<boost::mp11::mp_list<Parts...>, is_axis_part>;
  using rest = boost::mp11::mp_remove_if<boost::mp11::mp_list<Parts...>, is_axis_part>;
  static_assert(boost::mp11::mp_size<rest>::value <= 1, "gspmd: mesh: give axes, then at most one device_order");
  static_assert(boost::mp11::mp_size<axes>::value <= static_cast<std::size_t>(detail::max_axes), "gspmd: mesh: at most 16 axes");
  using order = detail::order_table<boost::mp11::mp_front<boost::mp11::mp_push_back<rest, void>>>;

  static constexpr detail::mesh_info make_info() {
    detail::mesh_info m;
    boost::mp11::mp_for_each<boost::mp11::mp_transform<boost::mp11::mp_identity, axes>>(
        [&m](auto part) { m.add_axis(decltype(part)::type::name, decltype(part)::type::size); });
    m.shape.order = order::ids;
    m.shape.position = order::positions;
    return m;
  }

 public:
  static constexpr detail::mesh_info info = make_info();
  /// The number of devices: the product of the sizes of the axes.
  static constexpr int device_count = static_cast<int>(info.shape.device_count());

  static_assert(!info.has_equal_names(), "gspmd: mesh: two axes have one name; rename one of them");
  static_assert(order::fits(device_count), "gspmd: mesh: device_order must name every device id from 0 once");
};

}  // namespace gspmd
