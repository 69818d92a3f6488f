// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "gspmd/comm/communicator.hpp"
#include "gspmd/detail/edge/given_memory.hpp"
#include "gspmd/detail/ir/same_tiles.hpp"
#include "gspmd/detail/run/step_checks.hpp"
#include "gspmd/detail/transport/exclusive_use.hpp"
#include "gspmd/dynamic/program.hpp"
#include "gspmd/row_major.hpp"
#include "gspmd/shard_view.hpp"
#include "gspmd/sharded_array.hpp"
#include "gspmd/tree.hpp"

/// Programs made at run time on shards that have types: scatter, make_result and a step to call, as compiled programs have them.
namespace gspmd {
namespace detail {

/// `input 1 (w1)`, `output 0`: a leaf of a program, its inputs first.
[[gnu::cold]] inline std::string words_of_leaf(const plan_view& plan, std::size_t leaf) {
  const auto inputs = plan.inputs.size();
  if (leaf >= inputs) return "output " + std::to_string(leaf - inputs);
  const auto& v = plan.value(plan.inputs[leaf]);
  const char* const name = plan.nodes[static_cast<std::size_t>(v.node)].at.name();
  return "input " + std::to_string(leaf) + (*name == '\0' ? "" : " (" + std::string(name) + ')');
}
/// `f32[4,6]`
[[gnu::cold]] inline std::string words_of_tensor(dtype type, const extents& shape) {
  return name_of(type) + std::string(shape_text(shape).view());
}
inline const planned_value& leaf_of(const plan_view& plan, std::size_t leaf) {
  const auto inputs = plan.inputs.size();
  return plan.value(leaf < inputs ? plan.inputs[leaf] : plan.outputs[leaf - inputs]);
}

/// A tensor that somebody gives, as far as it says what it is.
struct given_tensor {
  dtype type;
  std::optional<extents> shape;
  std::int64_t elems = -1;  // -1: a pointer does not know

  template <class Leaf>
  given_tensor(dtype t, const Leaf& leaf) : type(t), shape(known_extents(leaf)) {
    if (shape) elems = elements(*shape);
    else if constexpr (std::is_array_v<Leaf>) elems = static_cast<std::int64_t>(flat_array<Leaf>::size());
    else if constexpr (!std::is_pointer_v<Leaf>) elems = static_cast<std::int64_t>(std::size(leaf));
  }

  /// Whether it may be a tensor of this type and shape. What has one dim is a row of elements, of whatever shape.
  [[nodiscard]] bool fits(dtype wanted, const extents& of_shape) const {
    return type == wanted && (elems < 0 || elems == elements(of_shape)) && (!shape || shape->count == 1 || *shape == of_shape);
  }
  [[nodiscard]] std::string words() const {
    if (shape) return words_of_tensor(type, *shape);
    return name_of(type) +
           (elems < 0 ? std::string() : " with " + std::to_string(elems) + (elems == 1 ? " element" : " elements"));
  }
};

/// Throws unless a whole tensor is what a leaf is. `what`: `scatter: ... and the array given is`.
[[gnu::noinline]] inline void check_whole(const plan_view& plan, std::size_t leaf, const given_tensor& given) {
  const auto& v = leaf_of(plan, leaf);
  if (given.fits(v.type, v.global)) return;
  throw error("scatter: " + words_of_leaf(plan, leaf) + " is " + words_of_tensor(v.type, v.global) + " and the array given is " +
              given.words());
}
/// The same of a buffer for the shard of a device.
[[gnu::noinline]] inline void check_buffer(const plan_view& plan, std::size_t leaf, const given_tensor& given) {
  const auto& v = leaf_of(plan, leaf);
  if (given.fits(v.type, v.local)) return;
  throw error("step: " + words_of_leaf(plan, leaf) + " is " + words_of_tensor(v.type, v.global) + ", whose shards are " +
              words_of_tensor(v.type, v.local) + " with " + std::to_string(elements(v.local)) +
              " elements, and the buffer given is " + given.words() +
              "; every device allocates the local extents, padding included");
}
/// The same of the shards of a tensor that lie on `count` devices.
[[gnu::noinline]] inline void check_sharded(const plan_view& plan, const mesh_info& mesh, std::size_t leaf, int count,
                                            int given_count, const planned_value& has, const mesh_shape& given_mesh) {
  const auto& v = leaf_of(plan, leaf);
  const auto is = [&] { return "step: " + words_of_leaf(plan, leaf) + " is " + words_of_tensor(v.type, v.global); };
  if (given_count != count)
    throw error(is() + " on " + counted(count, "device") + " of this communicator, and the sharded_array given lies on " +
                std::to_string(given_count));
  if (&has == &v) return;
  if (!(has.global == v.global) || has.type != v.type)
    throw error(is() + " and the sharded_array given is " + words_of_tensor(has.type, has.global));
  if (same_tiles(given_mesh, has.layout, *plan.mesh, v.layout, v.global.count)) return;
  throw error(is() + " that lies as " + std::string(sharding_text(mesh, v.layout, v.global.count).view()) +
              " and the sharded_array given " +
              (same_mesh(given_mesh, mesh.shape)
                   ? "as " + std::string(sharding_text(mesh, has.layout, has.global.count).view()) +
                         "; annotate both alike, or bring it over with to_step"
                   : "otherwise, on another mesh of " + counted(static_cast<int>(given_mesh.device_count()), "device") +
                         "; annotate both alike, or bring it over with to_step"));
}
[[noreturn, gnu::cold, gnu::noinline]] inline void throw_leaf(const plan_view& plan, std::size_t leaf, const char* problem) {
  throw error("step: " + words_of_leaf(plan, leaf) + ' ' + problem);
}

template <class Leaf> concept holds_elements = !std::is_void_v<leaf_element_t<Leaf>>;

/// A whole array of `Leaf` cut to the shards of an input.
template <class Leaf>
auto scattered(const held_devices& devices, const std::shared_ptr<const dynamic::program>& p, std::size_t k, const Leaf& leaf) {
  static_assert(holds_elements<Leaf>,
                "gspmd: scatter: give arrays, contiguous ranges, pointers, or groups of them; of an any_array its data<T>()");
  using T = leaf_element_t<Leaf>;
  static_assert(is_element<T> && !own_element<T>,
                "gspmd: scatter: the elements given are none of a program that is made at run time");
  check_whole(p->view(), k, given_tensor(dtype_of<T>(), leaf));
  if constexpr (std::is_pointer_v<Leaf>)
    if (leaf == nullptr && elements(leaf_of(p->view(), k).global) > 0)
      throw error("scatter: " + words_of_leaf(p->view(), k) + " is given no memory: the pointer is null");
  sharded_array<T> shards(devices.local_count(), *p->view().mesh, leaf_of(p->view(), k), p);
  scatter_leaf(devices, leaf, shards);
  return shards;
}

/// Returns an empty array for a view or std::vector<bool>: accept_container has reported it.
template <class Leaf>
  requires(is_strided_view<Leaf> || !has_addresses<Leaf>)
sharded_array<float> scattered(const held_devices&, const std::shared_ptr<const dynamic::program>&, std::size_t, const Leaf&) {
  return {};
}

[[gnu::noinline]] inline void check_leaves(const char* op, const char* kind, std::size_t first, std::size_t count,
                                           std::size_t there) {
  if (count <= there && first <= there - count) return;
  throw error(std::string(op) + ": " + kind + ' ' + std::to_string(first) +
              (count == 1 ? " is" : " and the " + std::to_string(count - 1) + " after it are") +
              " asked for and the program has " + counted(static_cast<int>(there), kind) + ", which count from 0");
}
template <class Tree>
std::size_t count_leaves(Tree& tree) {
  std::size_t n = 0;
  for_each_leaf(tree, [&n](auto&) { ++n; });
  return n;
}

}  // namespace detail

namespace dynamic {

/// Input `first` of a program, and as many after it as `whole` has arrays, cut from whole arrays: `whole` is an array, a contiguous range or
/// a pointer, or a group of them (structs declared with Hana, arrays, vectors, tuples, one in another); the result is a sharded_array, or
/// the same group of them. They keep what they need of the program. No communication: every process gives the whole, or at least what its
/// devices hold of it.
///
///     auto x = scatter(comm, program, 0, pixels);   auto w = scatter(comm, program, 1, weights);
///
/// Throws gspmd::error: another element type, shape or number of elements than the input's, which is named (what has one dim or does not
/// know its extents needs as many elements); no such input; another number of devices.
template <communicator Comm, class Whole>
auto scatter(const Comm& comm, const program& p, std::size_t first, const Whole& whole) {
  static_assert(detail::accept_containers<Whole>());
  detail::check_leaves("scatter", "input", first, detail::count_leaves(whole), p.input_count());
  const detail::held_devices devices(comm, static_cast<int>(p.mesh_info().shape.device_count()));
  const auto kept = std::make_shared<const program>(p);
  return transform_leaves([&](const auto& leaf) { return detail::scattered(devices, kept, first++, leaf); }, whole);
}

/// Zeroed memory for output `first` of a program, and as many after it as `like` has leaves: a group like `like`, whose element types are
/// those of its arrays. So the next weights are made from the weights.
///
///     auto loss = make_result<float>(comm, program, 0);   auto next_w = make_result(comm, program, 1, w);
///
/// No communication. Throws gspmd::error: another element type than the output's; no such output; another number of devices.
template <communicator Comm, class Like>
auto make_result(const Comm& comm, const program& p, std::size_t first, const Like& like) {
  detail::check_leaves("make_result", "output", first, detail::count_leaves(like), p.output_count());
  const detail::held_devices devices(comm, static_cast<int>(p.mesh_info().shape.device_count()));
  const auto kept = std::make_shared<const program>(p);
  return transform_leaves(
      [&]<class Leaf>(const Leaf&) {
        using T = typename decltype([] {
          if constexpr (requires { typename Leaf::element; }) return std::type_identity<typename Leaf::element>{};
          else return std::type_identity<detail::leaf_element_t<Leaf>>{};
        }())::type;
        const auto leaf = kept->input_count() + first++;
        const auto& v = detail::leaf_of(kept->view(), leaf);
        if (v.type != detail::dtype_of<T>())
          throw error("make_result: " + detail::words_of_leaf(kept->view(), leaf) + " is " +
                      detail::words_of_tensor(v.type, v.global) + " and shards of " + detail::name_of(detail::dtype_of<T>()) +
                      " are asked for");
        return sharded_array<T>(devices.local_count(), *kept->view().mesh, v, kept);
      },
      like);
}
/// The same for one output, of elements of type T.
template <class T, communicator Comm>
sharded_array<T> make_result(const Comm& comm, const program& p, std::size_t k) {
  return make_result(comm, p, k, sharded_array<T>());
}

/// A program on the devices that one communicator holds, with their scratch memory: what is called with shards, as an object of a compiled
/// step is. What their types say when compiling is checked here in each call.
///
///     dynamic::step s(program);
///     for (int t = 0; t < 100; ++t) s(comm, w, x, loss, w);   // where program.may_overwrite allows it
///
/// Threads: one at a time, else gspmd::error; each device of `threads` needs its own.
class step {
 public:
  explicit step(const program& p) : program_(p), session_(program_) {}

  [[nodiscard]] const dynamic::program& program() const { return program_; }

  /// Runs the program on the devices of `comm`: takes the shards of the inputs, then of the outputs, one by one or in groups, vectors
  /// too. A shard is a sharded_array, of `scatter`, `make_result` or a compiled step, or, where `comm` holds one device, a pointer or a
  /// contiguous range of dense row-major elements, of the local shape or of one dim. Collective. After the first call nothing is
  /// allocated. Outputs must not overlap inputs nor each other, but output `k` may be the memory of input `i` if
  /// program().may_overwrite(k, i).
  ///
  /// Throws gspmd::error, which names the input or output, its type and shape: another number of tensors; another type, shape or sharding;
  /// no memory, an empty array, an output that may not be written; memory that overlaps; whatever goes wrong on a device.
  template <communicator Comm, class... Shards>
  void operator()(Comm& comm, Shards&&... shards) {
    const auto used = use_.take();
    const auto& plan = program_.view();
    const auto wanted = plan.inputs.size() + plan.outputs.size();
    if (const std::size_t count = (std::size_t{0} + ... + detail::count_leaves(shards)); count != wanted)
      throw error("step: the program has " + detail::counted(static_cast<int>(plan.inputs.size()), "input") + " and " +
                  detail::counted(static_cast<int>(plan.outputs.size()), "output") + " and the call gives " +
                  detail::counted(static_cast<int>(count), "tensor") +
                  "; give the shards of the inputs, then those of the outputs");
    const int held = comm.local_count();
    given_.resize(plan, static_cast<std::size_t>(held));
    std::size_t leaf = 0;
    (detail::for_each_leaf(shards, [&](auto& given) { put(held, leaf++, given); }), ...);
    session_.run(comm, given_.inputs.data(), given_.outputs.data());
  }

  /// The same from pointers: `inputs[d * inputs + k]` is the shard of input k on device d of `comm`. What they point at the caller answers for.
  template <communicator Comm>
  void run(Comm& comm, const void* const* inputs, void* const* outputs) {
    session_.run(comm, inputs, outputs);
  }

 private:
  template <class Given>
  void put(int held, std::size_t leaf, Given& given) {
    using plain = std::remove_cv_t<Given>;
    const auto& plan = program_.view();
    if constexpr (detail::is_sharded_array<plain>) {
      if (given.local_count() == 0)
        detail::throw_leaf(plan, leaf,
                           "is given an empty sharded_array, never filled or moved from; make it with scatter or make_result");
      detail::check_sharded(plan, program_.mesh_info(), leaf, held, given.local_count(), given.planned(), given.mesh());
      for (int d = 0; d < held; ++d) put_at(leaf, static_cast<std::size_t>(d), given.data(d));
    } else if constexpr (!detail::has_addresses<plain>) {
      static_assert(detail::accept_container<plain>());
    } else {
      static_assert(detail::holds_elements<plain>,
                    "gspmd: step: give a sharded_array, a contiguous range or a pointer for each tensor, or groups of them");
      static_assert(std::is_pointer_v<plain> || detail::accept_container<plain>());
      if (held != 1) detail::throw_several_devices(static_cast<std::size_t>(held));
      detail::check_buffer(plan, leaf,
                           detail::given_tensor(detail::dtype_of<detail::leaf_element_t<plain>>(), std::as_const(given)));
      if constexpr (std::is_pointer_v<plain>) {
        put_at(leaf, 0, given);
      } else if constexpr (std::rank_v<plain> > 1) {
        put_at(leaf, 0, reinterpret_cast<std::conditional_t<std::is_const_v<Given>, const void*, void*>>(&given));
      } else {
        detail::require_dense(given);
        if constexpr (detail::is_shard<plain>) check_view(leaf, given);
        put_at(leaf, 0, std::data(given));
      }
    }
  }
  /// A view of a compiled step's shard says how it lies.
  template <class T, class Mesh, class Dims, class Split>
  void check_view(std::size_t leaf, const shard_view<T, Mesh, Dims, Split>&) const {
    using view = shard_view<T, Mesh, Dims, Split>;
    detail::planned_value has;
    has.type = detail::dtype_of<std::remove_cv_t<T>>();
    has.global = view::global_extents;
    has.layout = view::layout;
    detail::check_sharded(program_.view(), program_.mesh_info(), leaf, 1, 1, has, Mesh::info.shape);
  }
  void put_at(std::size_t leaf, std::size_t d, const void* shard) {
    if (leaf >= program_.input_count())
      detail::throw_leaf(program_.view(), leaf, "is given a const array, and outputs are written; give one that is not const");
    given_.put(program_.view(), leaf, d, shard);
  }
  void put_at(std::size_t leaf, std::size_t d, void* shard) { given_.put(program_.view(), leaf, d, shard); }

  dynamic::program program_;
  session session_;
  detail::given_memory given_;
  detail::exclusive_use use_;
};

}  // namespace dynamic
}  // namespace gspmd
