// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <string_view>
#include <type_traits>

#include "gspmd/detail/ir/layout.hpp"
#include "gspmd/detail/ir/mesh_info.hpp"
#include "gspmd/detail/support/fixed_string.hpp"
#include "gspmd/detail/support/mp11.hpp"
#include "gspmd/detail/support/refuse.hpp"

namespace gspmd {

/// One axis of a device mesh: a name and the number of devices along the axis.
template <fixed_string Name, int Size>
struct axis {
  static_assert(Size >= 1, "gspmd: mesh: an axis has at least one device");
  static_assert(!Name.view().empty() && Name.view().size() <= detail::max_name,
                "gspmd: mesh: an axis name has 1 to 31 characters");
  static_assert(detail::is_axis_name(Name.view()), "gspmd: mesh: an axis name holds letters, digits and _ only");
  static constexpr std::string_view name = Name.view();
  static constexpr int size = Size;
};

/// The device ids of a mesh, row-major over its axes. It is the last argument of `mesh`. Without it, device ids count
/// from 0.
template <int... Ids>
struct device_order {};

namespace detail {

template <class T>
inline constexpr bool is_axis = false;
template <fixed_string Name, int Size>
inline constexpr bool is_axis<axis<Name, Size>> = true;

/// The mesh that another mesh changes: `type` of changed_mesh<mesh_with<pod, Options>> is pod. A mesh that changes
/// another mesh specialises it. The name alone is enough, so the other mesh is not instantiated.
template <class Mesh>
struct changed_mesh {};
template <class Mesh> concept changes_mesh = requires { typename changed_mesh<Mesh>::type; };

/// False for a list of meshes that are not views of each other (layouts/mesh_views.hpp).
template <class Mesh>
inline constexpr bool accepts_meshes = true;
template <changes_mesh Mesh>
inline constexpr bool accepts_meshes<Mesh> = accepts_meshes<typename changed_mesh<Mesh>::type>;

/// True if `Mesh` is `Of` or one of its views.
template <class Mesh, class Of>
inline constexpr bool is_view_of = std::is_same_v<Mesh, Of>;
template <class Mesh, changes_mesh Of>
inline constexpr bool is_view_of<Mesh, Of> = std::is_same_v<Mesh, Of> || is_view_of<Mesh, typename changed_mesh<Of>::type>;

template <class Order>
struct order_table {
  static constexpr const std::int32_t* ids = nullptr;
  static constexpr const std::int32_t* positions = nullptr;
  static constexpr text problem(std::int64_t) { return {}; }
};
template <int... Ids>
struct order_table<device_order<Ids...>> {
  static constexpr std::int32_t id_list[sizeof...(Ids)] = {Ids...};
  static constexpr text problem(std::int64_t devices) {
    constexpr auto count = static_cast<std::int64_t>(sizeof...(Ids));
    if (devices != count) return text("device_order names ") << count << " devices and the axes have " << devices;
    std::array<bool, sizeof...(Ids)> named{};
    for (const auto id : id_list) {
      if (id < 0 || id >= count)
        return text("device_order names the device ")
               << id << " and the ids of " << devices << " devices are 0 to " << devices - 1;
      if (named[static_cast<std::size_t>(id)]) return text("device_order names the device ") << id << " twice";
      named[static_cast<std::size_t>(id)] = true;
    }
    return {};
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
/// **Errors.** Compile error: two axes with the same name; a device_order that is not a permutation of the device ids.
/// **Example.**
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

  static constexpr detail::mesh_info named_axes() {
    detail::mesh_info m;
    boost::mp11::mp_for_each<boost::mp11::mp_transform<boost::mp11::mp_identity, axes>>(
        [&m](auto part) { m.add_axis(decltype(part)::type::name, decltype(part)::type::size); });
    return m;
  }
  struct equal_names {
    static constexpr detail::text make() {
      const auto m = named_axes();
      int a = 0;
      while (m.find(m.name(a)) == a) ++a;
      return detail::text("the axes ") << m.find(m.name(a)) << " and " << a << " of the mesh are both named `" << m.name(a)
                                       << '`';
    }
  };
  struct wrong_order {
    static constexpr detail::text make() { return order::problem(named_axes().shape.device_count()); }
  };
  static constexpr bool order_fits() {
    const auto problem = wrong_order::make();
    return problem.empty();
  }
  static constexpr bool check() {
    static_assert(named_axes().shape.device_count() <= 2'147'483'647, "gspmd: mesh: at most 2147483647 devices");
    if constexpr (named_axes().has_equal_names()) detail::refuse<detail::mistake::mesh_axes, equal_names>();
    else if constexpr (!order_fits()) detail::refuse<detail::mistake::device_order, wrong_order>();
    return true;
  }
  static constexpr detail::mesh_info make_info() {
    auto m = named_axes();
    if (order_fits()) {
      m.shape.order = order::ids;
      m.shape.position = order::positions;
    }
    return m;
  }

 public:
  static constexpr detail::mesh_info info = make_info();
  /// The number of devices: the product of the sizes of the axes.
  static constexpr int device_count = check() ? static_cast<int>(info.shape.device_count()) : 0;
};

namespace detail {

/// True for meshes. It reads only the names of the library's meshes and does not instantiate them, so later code
/// reports the errors of a mesh one after another.
template <class Mesh>
inline constexpr bool is_mesh = requires { Mesh::device_count; };
template <class... Parts>
inline constexpr bool is_mesh<mesh<Parts...>> = true;
template <changes_mesh Mesh>
inline constexpr bool is_mesh<Mesh> = is_mesh<typename changed_mesh<Mesh>::type>;

}  // namespace detail

}  // namespace gspmd
