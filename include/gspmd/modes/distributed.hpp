// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gspmd/modes/tensor.hpp"
#include "gspmd/ops/branches.hpp"
#include "gspmd/ops/dims.hpp"
#include "gspmd/ops/einsum.hpp"
#include "gspmd/ops/elementwise.hpp"
#include "gspmd/ops/local_op.hpp"
#include "gspmd/ops/loops.hpp"
#include "gspmd/ops/map.hpp"
#include "gspmd/ops/named.hpp"
#include "gspmd/ops/policy.hpp"
#include "gspmd/ops/reduce.hpp"
#include "gspmd/ops/scan.hpp"
#include "gspmd/ops/shape.hpp"
#include "gspmd/program/sharded_array.hpp"
#include "gspmd/run/compile.hpp"

/// Tensors as variables of an ordinary program that runs on every device. Each operator is a separate call, and the
/// types state the shardings. See examples/modes.
namespace gspmd {

namespace detail {

/// The element type, mesh and layout of a tensor's type, as a planned_value, which steps use.
template <class Tensor>
struct laid_out;
template <class T, class Dims, class Mesh, class... Parts>
struct laid_out<tensor<T, Dims, gspmd::place<Mesh, Parts...>>> {
  using element = T;
  using mesh = Mesh;
  static constexpr planned_value value = [] {
    planned_value v;
    v.type = dtype_of<T>();
    v.global = Dims::value;
    v.layout = parts_of_place<Parts...>(Mesh::info, Dims::rank).layout.planned();
    v.local = local_extents(Mesh::info.shape, v.global, v.layout);
    v.is_padded = padded_dims(Mesh::info.shape, v.global, v.layout) != 0;
    return v;
  }();
};

}  // namespace detail

/// A tensor on the devices of a communicator: a sharded_array whose type states its shape and sharding, for example
/// `tensor<float, shape<64, 512>, place<...>>`.
///
/// `distribute` and `call` make objects of this type; `collect` returns the whole array. The communicator must outlive
/// the object.
///
/// **Threads.** The same rules as for sharded_array.
template <class Tensor, communicator Comm>
class distributed {
  using known = detail::laid_out<Tensor>;

 public:
  using type = Tensor;
  using element = typename known::element;
  using mesh = typename known::mesh;

  /// Makes a tensor of zeros.
  explicit distributed(Comm& comm) : comm_(&comm), shards_(comm, mesh::info.shape, known::value) {}

  [[nodiscard]] Comm& comm() const { return *comm_; }
  [[nodiscard]] sharded_array<element>& shards() { return shards_; }
  [[nodiscard]] const sharded_array<element>& shards() const { return shards_; }

 private:
  Comm* comm_;
  sharded_array<element> shards_;
};

/// Returns a tensor with the shards of a whole array. `whole` is an array, a contiguous range or a pointer; every
/// process passes the whole data.
///
/// If the tensor is partial, the first device along its axes holds the data, and the other devices hold the identity of
/// the reduction.
///
/// **Communication.** None.
/// **Errors.** If the number of elements or of devices is wrong, gspmd::error.
/// **Example.**
///
///     using weight = tensor<float, shape<512, 256>, place<pod, split<_, "model">, replica<"data">>>;
///     auto w = distribute<weight>(comm, weights);
template <class Tensor, communicator Comm, class Whole>
distributed<Tensor, Comm> distribute(Comm& comm, const Whole& whole) {
  static_assert(detail::accept_containers<Whole>());
  distributed<Tensor, Comm> made(comm);
  detail::distribute_leaf(detail::held_devices(comm, distributed<Tensor, Comm>::mesh::device_count), whole, made.shards());
  return made;
}

/// Returns the whole array on every device.
///
/// **Communication.** Collective.
/// **Errors.** If the tensor is partial, gspmd::error.
template <class Tensor, communicator Comm>
auto collect(const distributed<Tensor, Comm>& x) {
  return collect(x.comm(), x.shards());
}

/// Runs a callable of the explicit mode on the devices of the tensors, as one step of `compile` with their types.
/// Returns a distributed tensor, or a tuple of distributed tensors.
///
/// **Communication.** Collective. Sends only the communication of the callable's `reshard`s and `out`s. `call_sends` is
/// this traffic as a constant.
/// **Errors.** Compile errors: those of `compile`, with their remedies. At run time: those of a step.
/// **Example.**
///
///     auto y = call<[](auto a, auto b) { return tanh(a) * b; }>(x, w);
///     static_assert(std::is_same_v<decltype(y)::type, tensor<float, shape<64, 512>, place<pod, split<"data", _>>>>);
template <detail::constant_callable Callable, class... Tensors, communicator Comm>
auto call(const distributed<Tensors, Comm>&... arguments) {
  static_assert(sizeof...(Tensors) > 0, "gspmd: call: give the tensors that the callable takes");
  using mesh = typename std::tuple_element_t<0, std::tuple<distributed<Tensors, Comm>...>>::mesh;
  using step = compile<Callable, mesh, Tensors...>;
  constexpr std::size_t count = step::output_count;  // first, so that errors of the program are reported here
  Comm& comm = std::get<0>(std::tie(arguments...)).comm();
  return [&]<std::size_t... K>(std::index_sequence<K...>) {
    std::tuple results{distributed<typed_result_of<K, Callable, mesh, Tensors...>, Comm>(comm)...};
    if constexpr (step::accepted) {
      thread_local step held;  // the next call reuses its scratch memory
      held(comm, arguments.shards()..., std::get<K>(results).shards()...);
    }
    return detail::like_result<typename step::callable_result, 0>(results);
  }(std::make_index_sequence<count>{});
}
/// The traffic per device in a call of `Callable`.
template <detail::constant_callable Callable, class First, class... Tensors>
inline constexpr traffic call_sends =
    compile<Callable, typename First::mesh, typename First::type, typename Tensors::type...>::traffic;

template <class A, class B, communicator Comm>
auto operator+(const distributed<A, Comm>& a, const distributed<B, Comm>& b) {
  return call<[](value x, value y) { return x + y; }>(a, b);
}
template <class A, class B, communicator Comm>
auto operator-(const distributed<A, Comm>& a, const distributed<B, Comm>& b) {
  return call<[](value x, value y) { return x - y; }>(a, b);
}
template <class A, class B, communicator Comm>
auto operator*(const distributed<A, Comm>& a, const distributed<B, Comm>& b) {
  return call<[](value x, value y) { return x * y; }>(a, b);
}
template <class A, class B, communicator Comm>
auto operator/(const distributed<A, Comm>& a, const distributed<B, Comm>& b) {
  return call<[](value x, value y) { return x / y; }>(a, b);
}
template <fixed_string Equation, class A, class B, communicator Comm>
auto einsum(const distributed<A, Comm>& a, const distributed<B, Comm>& b) {
  return call<[](value x, value y) { return gspmd::einsum<Equation>(x, y); }>(a, b);
}
template <fixed_string Equation, class A, class B, communicator Comm, class... Parts>
auto einsum(const distributed<A, Comm>& a, const distributed<B, Comm>& b, out<Parts...>) {
  return call<[](value x, value y) { return gspmd::einsum<Equation>(x, y, out<Parts...>{}); }>(a, b);
}
template <class... Parts, class Tensor, communicator Comm>
  requires(sizeof...(Parts) > 0)
auto reshard(const distributed<Tensor, Comm>& x) {
  return call<[](value y) { return gspmd::reshard<Parts...>(y); }>(x);
}

}  // namespace gspmd
