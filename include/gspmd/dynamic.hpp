// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/budget.hpp"
#include "gspmd/detail/exec/bound_devices.hpp"
#include "gspmd/detail/exec/explain_plan.hpp"
#include "gspmd/detail/exec/interpreter.hpp"
#include "gspmd/detail/exec/step_checks.hpp"
#include "gspmd/detail/ir/mesh_views.hpp"
#include "gspmd/detail/ops/kept_functions.hpp"
#include "gspmd/detail/passes/canonical.hpp"
#include "gspmd/detail/passes/make_plan.hpp"
#include "gspmd/detail/passes/sub_axes.hpp"
#include "gspmd/placed_tensor.hpp"
#include "gspmd/run.hpp"
#include "gspmd/xla_sharding.hpp"

/// The run-time path: mesh, extents and shardings known when the program runs. The planner and the kernels are those of
/// `compile`; what is a compile error there is a gspmd::error with the same words here, thrown before anything runs.
namespace gspmd::dynamic {

/// A device mesh whose axes are known at run time.
///
///     dynamic::mesh m({{"data", 2}, {"model", ranks / 2}});
///     dynamic::mesh r({{"x", 2}, {"y", 2}}, {0, 1, 3, 2});       // device ids, row-major over the axes
class mesh {
 public:
  struct axis {
    std::string name;
    std::int64_t size = 1;
  };

  /// Throws gspmd::error: a bad name, two equal names, a size below 1, too many axes or devices, an order that is none.
  explicit mesh(const std::vector<axis>& axes, const std::vector<std::int32_t>& order = {}) : held_(std::make_shared<held>()) {
    if (axes.size() > static_cast<std::size_t>(detail::max_axes)) throw error("mesh: at most 16 axes");
    constexpr std::int64_t most_devices = std::int64_t{1} << 30;
    std::int64_t devices = 1;
    for (const auto& a : axes) {
      if (a.name.size() > detail::max_name || !detail::is_axis_name(a.name))
        throw error("mesh: the axis name `" + a.name + "` must have 1 to 31 letters, digits and _");
      if (a.size < 1)
        throw error("mesh: axis `" + a.name + "` has " + std::to_string(a.size) + " devices; it needs at least one");
      if (a.size > most_devices / devices) throw error("mesh: more than 2^30 devices");
      devices *= a.size;
      held_->info.add_axis(a.name, static_cast<std::int32_t>(a.size));
    }
    if (held_->info.has_equal_names()) throw error("mesh: two axes have one name; rename one of them");
    if (order.empty()) return;
    held_->order = order;
    held_->position.assign(static_cast<std::size_t>(devices), -1);
    bool fits = static_cast<std::int64_t>(order.size()) == devices;
    for (std::size_t i = 0; i < order.size() && fits; ++i) {
      fits = order[i] >= 0 && order[i] < devices && held_->position[static_cast<std::size_t>(order[i])] < 0;
      if (fits) held_->position[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
    }
    if (!fits) throw error("mesh: device_order must name every device id from 0 to " + std::to_string(devices - 1) + " once");
    held_->info.shape.order = held_->order.data();
    held_->info.shape.position = held_->position.data();
  }

  [[nodiscard]] const detail::mesh_info& info() const { return held_->info; }
  [[nodiscard]] std::shared_ptr<const detail::mesh_info> shared_info() const { return {held_, &held_->info}; }
  [[nodiscard]] std::int64_t device_count() const { return held_->info.shape.device_count(); }

  /// One device, with axes of the same names.
  [[nodiscard]] mesh with_one_device() const {
    mesh result(*this);
    result.held_ = std::make_shared<held>();
    for (int a = 0; a < info().shape.axis_count(); ++a) result.held_->info.add_axis(info().name(a), 1);
    result.held_->info.views = info().views;
    return result;
  }
  /// The same devices, seen as this mesh and as `other`: annotations may name the axes of both. Throws gspmd::error: see `views`.
  [[nodiscard]] mesh with_view(const mesh& other) const {
    const auto seen = detail::with_view(info(), other.info());
    if (!seen.problem.empty()) throw error("views: " + std::string(seen.problem.view()));
    return with_info(seen.info);
  }
  /// The same devices with one axis cut in two (detail/passes/sub_axes.hpp).
  [[nodiscard]] mesh with_cut(detail::axis_cut cut) const { return with_info(detail::cut_axis(held_->info, cut)); }

 private:
  struct held {  // plans point into it
    detail::mesh_info info;
    std::vector<std::int32_t> order;
    std::vector<std::int32_t> position;
  };
  /// The same devices under other axes.
  [[nodiscard]] mesh with_info(const detail::mesh_info& other) const {
    mesh result(*this);
    result.held_ = std::make_shared<held>(*held_);
    auto& info = result.held_->info;
    info = other;
    if (info.shape.order != nullptr) {
      info.shape.order = result.held_->order.data();
      info.shape.position = result.held_->position.data();
    }
    return result;
  }
  std::shared_ptr<held> held_;
};

/// Several meshes over the same devices as one: annotations may name the axes of each, and a value that is sharded by one of them
/// is resharded where an operator wants it by another. What can be views of each other is said at gspmd::views. Throws
/// gspmd::error: another number of devices, axes of one that end inside axes of the other, a device order that is no exchange of
/// axes, one name for two things.
///
///     const auto m = dynamic::views({dynamic::mesh({{"x", 4}, {"y", 2}}), dynamic::mesh({{"a", 2}, {"b", 4}})});
///     auto step = dynamic::compile(f, m, dynamic::in<float>({8, 8}, {"x", ""}), dynamic::in<float>({8, 8}, {"b", ""}));
inline mesh views(const std::vector<mesh>& meshes) {
  if (meshes.empty()) throw error("views: give at least one mesh");
  mesh result = meshes.front();
  for (std::size_t k = 1; k < meshes.size(); ++k) result = result.with_view(meshes[k]);
  return result;
}

/// An input of a program. `sharding` has one entry for each dim, as in `split`: "data", "data,model", "" or "?"; none at all
/// leaves the input to completion. A single entry may be XLA's text for all dims: "{devices=[2,1]<=[2]}".
struct input {
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::string> sharding;
  bool annotated = false;
  std::string partial_axes;
  monoid partial_kind = monoid::add;
};

/// An input of element type T.
template <class T>
input in(std::vector<std::int64_t> shape) {
  return {detail::dtype_of<T>(), std::move(shape), {}, false, {}, monoid::add};
}
template <class T>
input in(std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
  return {detail::dtype_of<T>(), std::move(shape), std::move(sharding), true, {}, monoid::add};
}

/// A whole tensor of a type that is known at run time.
struct any_array {
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  template <class T>
  [[nodiscard]] const T* data() const {
    if (detail::dtype_of<T>() != type)
      throw error(std::string("the array is ") + detail::name_of(type) + ", not " + detail::name_of(detail::dtype_of<T>()));
    return reinterpret_cast<const T*>(bytes.data());
  }
};

/// A compiled program: a value that may be kept, copied, run any number of times and asked what was decided.
class program {
 public:
  /// `functions`: what maps of the graph point at.
  program(mesh m, const detail::graph& g, std::shared_ptr<const detail::kept_functions> functions = nullptr)
      : mesh_(std::move(m)), functions_(std::move(functions)) {
    if (g.failed()) throw error(std::string(g.error.view()));
    detail::graph refined;
    const bool is_refined = detail::has_reshape(g.nodes) && refine(g, refined);
    auto made = std::make_shared<detail::plan>(detail::make_plan(is_refined ? refined : g, mesh_.info().shape));
    if (!made->error.empty()) throw error(std::string(made->error.view()));
    plan_ = std::move(made);
    view_ = detail::plan_view(*plan_);
  }

  [[nodiscard]] const detail::plan_view& view() const { return view_; }
  [[nodiscard]] const detail::mesh_info& mesh_info() const { return mesh_.info(); }

  /// The collectives, in the order in which every device runs them.
  [[nodiscard]] std::vector<collective> collectives() const {
    std::vector<collective> result;
    for (const auto& s : view_.steps)
      if (detail::communicates(view_, s))
        result.push_back({s.collective, dim_spec(detail::axes_text(mesh_.info(), detail::axes_of(view_, s)).view())});
    return result;
  }
  /// Their number, what one device sends in them and in how many messages, each for all of them, for those over one axis and
  /// for those of one kind; memory and arithmetic of one device. All as in `compile`. Throws gspmd::error: no such axis.
  [[nodiscard]] std::int64_t collective_count() const { return detail::total_collectives(view_); }
  [[nodiscard]] std::int64_t collective_count_over(std::string_view axis) const {
    return detail::total_collectives(view_, over_axis(axis));
  }
  [[nodiscard]] std::int64_t collective_count_in(collective_kind kind) const {
    return detail::total_collectives(view_, detail::of_kind(kind));
  }
  [[nodiscard]] std::int64_t bytes_sent_per_device() const { return detail::total_bytes(view_); }
  [[nodiscard]] std::int64_t bytes_sent_over(std::string_view axis) const { return detail::total_bytes(view_, over_axis(axis)); }
  [[nodiscard]] std::int64_t bytes_sent_in(collective_kind kind) const {
    return detail::total_bytes(view_, detail::of_kind(kind));
  }
  [[nodiscard]] std::int64_t messages_sent_per_device() const { return detail::total_messages(view_); }
  [[nodiscard]] std::int64_t messages_sent_over(std::string_view axis) const {
    return detail::total_messages(view_, over_axis(axis));
  }
  [[nodiscard]] std::int64_t messages_sent_in(collective_kind kind) const {
    return detail::total_messages(view_, detail::of_kind(kind));
  }
  [[nodiscard]] std::int64_t peak_bytes_per_device() const { return detail::peak_bytes(view_); }
  [[nodiscard]] std::int64_t packing_bytes_per_device() const { return detail::packing_bytes(view_); }
  [[nodiscard]] std::int64_t flops_per_device() const { return detail::total_flops(view_); }

  /// The tensors of the program as they lie on the devices: its inputs, its outputs, and what every operator that the outputs
  /// need leaves, in the order of the program. Throws gspmd::error: no such input or output.
  [[nodiscard]] std::size_t input_count() const { return view_.inputs.size(); }
  [[nodiscard]] std::size_t output_count() const { return view_.outputs.size(); }
  [[nodiscard]] placed_tensor input(std::size_t k) const { return placed(view_.inputs, k, "input"); }
  [[nodiscard]] placed_tensor output(std::size_t k) const { return placed(view_.outputs, k, "output"); }
  [[nodiscard]] std::vector<traced_operator> operators() const {
    std::vector<traced_operator> result;
    for (const auto& n : view_.nodes) {
      if (n.value < 0) continue;
      const char* const file = n.at.is_input() ? "" : n.at.file;
      result.push_back({detail::name_of(n.op), file, n.at.line, placed_tensor(mesh_.shared_info(), view_.value(n.value))});
    }
    return result;
  }
  /// The input whose memory output `k` may be written to by a session; -1: none.
  [[nodiscard]] int shared_input(std::size_t k) const {
    static_cast<void>(output(k));
    return view_.shared_inputs[k];
  }

  /// True when every device runs the same steps on the same memory, on meshes of the same axes and devices. Where the program
  /// was written does not count. Functions with state that maps were given are equal to themselves only: a program that holds
  /// one is equal to its copies.
  friend bool operator==(const program& a, const program& b) {
    return a.plan_ == b.plan_ || (detail::same_mesh(a.mesh_.info(), b.mesh_.info()) && detail::same_plan(a.view_, b.view_));
  }

  /// Runs once on whole arrays and returns whole arrays, as run<step> does.
  template <class Backend, class... Arguments>
  std::vector<any_array> run(const Backend& backend, const Arguments&... arguments) const {
    const detail::whole_inputs inputs(view_, arguments...);
    return run_pointers(backend, inputs.pointers);
  }
  /// The same from pointers to whole arrays, one for each input, whose sizes and types the caller answers for.
  template <class Backend>
  std::vector<any_array> run_pointers(const Backend& backend, const std::vector<const void*>& inputs) const {
    std::vector<any_array> arrays;
    std::vector<void*> outputs;
    for (const int o : view_.outputs) {
      const auto& v = view_.value(o);
      arrays.push_back({v.type, std::vector<std::int64_t>(v.global.begin(), v.global.end()),
                        std::vector<std::byte>(static_cast<std::size_t>(detail::elements(v.global) * detail::bytes_of(v.type)))});
    }
    for (auto& a : arrays) outputs.push_back(a.bytes.data());
    launch(backend, static_cast<int>(mesh_.device_count()), [&](auto& comm) { run_on(comm, inputs.data(), outputs.data()); });
    return arrays;
  }

 private:
  template <class Comm>
  void run_on(Comm& comm, const void* const* inputs, void* const* outputs) const;

  [[nodiscard]] placed_tensor placed(std::span<const int> list, std::size_t k, const char* what) const {
    if (k >= list.size())
      throw error(std::string(what) + ' ' + std::to_string(k) + " is asked for and the program has " +
                  std::to_string(list.size()) + ", which count from 0");
    return {mesh_.shared_info(), view_.value(list[k])};
  }
  /// Cuts axes of the mesh as reshapes need it; false if none does.
  bool refine(const detail::graph& g, detail::graph& refined) {
    const detail::graph* now = &g;
    for (;;) {
      const auto cut = detail::find_cut(*now, detail::complete_graph(*now, mesh_.info().shape));
      if (cut.axis < 0) return now != &g;
      if (now == &g) refined = g;
      now = &refined;
      mesh_ = mesh_.with_cut(cut);
      detail::cut_axis(refined, mesh_.info(), cut.axis);
    }
  }

  [[nodiscard]] detail::collective_filter over_axis(std::string_view name) const {
    const auto axes = mesh_.info().mask_of(name);
    if (axes == 0) throw error("the mesh has no axis `" + std::string(name) + '`');
    return detail::over_axes(axes);
  }

  dynamic::mesh mesh_;
  std::shared_ptr<const detail::kept_functions> functions_;
  std::shared_ptr<const detail::plan> plan_;
  detail::plan_view view_;
};

/// What was decided for a program, as text: the same as `explain<step>()`.
inline std::string explain(const program& p) { return detail::explain_plan(p.view(), p.mesh_info()); }

/// The scratch memory of the devices that one communicator holds; runs the program on shards.
class session {
 public:
  explicit session(const program& p) : program_(p), steps_(p.view()) {}

  /// Runs on the devices of `comm`: `inputs[d * inputs + k]` is the shard of input k on its device d, dense, row-major, of
  /// the local extents. After the first call nothing is allocated.
  template <communicator Comm>
  void run(Comm& comm, const void* const* inputs, void* const* outputs) {
    const auto& view = program_.view();
    bound_.bind(comm, view, inputs, outputs);
    steps_.run(comm, bound_.devices.data(), bound_.from.data(), bound_.to.data());
  }

 private:
  program program_;
  detail::interpreter steps_;
  detail::bound_devices bound_;
};

template <class Comm>
void program::run_on(Comm& comm, const void* const* inputs, void* const* outputs) const {
  session steps(*this);
  detail::run_whole(view_, comm, inputs, outputs,
                    [&steps](auto& devices, const void* const* in, void* const* out) { steps.run(devices, in, out); });
}

/// Builds a program by calls at run time.
///
///     dynamic::builder b(m);
///     auto x = b.input(dynamic::in<float>({n, 512}, {"data", ""}));   auto w = b.input(dynamic::in<float>({512, 64}));
///     b.output(relu(einsum("bd,df->bf", x, w)));
///     auto step = b.compile();
class builder {
 public:
  explicit builder(dynamic::mesh m) : mesh_(std::move(m)), graph_(std::make_unique<detail::graph>()) {
    graph_->mesh = &mesh_.info();
    graph_->allow_replication = false;
    graph_->functions = functions_.get();
  }

  value input(const dynamic::input& given, location at = location::current()) {
    if (given.shape.size() > static_cast<std::size_t>(detail::max_rank)) throw error("input: a tensor has at most 32 dims");
    detail::extents shape;
    for (const auto e : given.shape) {
      if (e < 0) throw error("input: an extent is not negative");
      shape.push_back(e);
    }
    require_countable(shape, detail::bytes_of(given.type));
    const int id = detail::add_parameter(*graph_, given.type, shape, at);
    auto& n = graph_->nodes[static_cast<std::size_t>(id)];
    if (given.annotated) {
      n.annotated = true;
      n.annotation =
          resolve(given.sharding, static_cast<int>(given.shape.size()), "input", at, given.partial_axes, given.partial_kind);
    }
    return {graph_.get(), id};
  }
  /// An input whose type says everything, or a `record` of them, as `compile` takes it; their axes are those of this mesh.
  ///
  ///     auto x = b.input(in<float, dims<64, 512>, split<"data", _>>{});
  template <class Input>
    requires requires { Input::leaves; }
  auto input(const Input&) {
    const auto first = graph_->inputs.size();
    auto traced = Input::trace(*graph_, static_cast<int>(first));
    for (auto k = first; k < graph_->inputs.size(); ++k) {
      const auto& n = graph_->nodes[static_cast<std::size_t>(graph_->inputs[k])];
      require_countable(n.shape, detail::bytes_of(n.type));
    }
    return traced;
  }
  void output(value v, location at = location::current()) {
    if (v.is_valid() && v.graph() == graph_.get()) graph_->outputs.push_back(v.id());
    else graph_->fail(at, "output", detail::mistake::other, "this is no value of this program; give what operators return");
  }
  /// The identity, sharded so: one entry for each dim, as in `split`.
  value reshard(value x, const std::vector<std::string>& sharding, location at = location::current()) {
    if (!x.is_valid()) return {};
    const auto s = resolve(sharding, x.rank(), "reshard", at);
    return {graph_.get(), graph_->failed() ? -1 : detail::add_reshard(*graph_, x.id(), s, at)};
  }
  [[nodiscard]] detail::graph& graph() { return *graph_; }
  [[nodiscard]] int input_count() const { return static_cast<int>(graph_->inputs.size()); }

  /// Throws gspmd::error with the first mistake: operator, line, dim or axis, and the way out.
  [[nodiscard]] program compile() const {
    if (graph_->failed()) throw error(std::string(graph_->error.view()));
    return {mesh_, detail::canonical_order(*graph_), functions_};
  }

  /// Throws gspmd::error unless the bytes of a tensor can be counted.
  static void require_countable(const detail::extents& shape, std::int64_t bytes_per_elem) {
    std::int64_t total = bytes_per_elem;
    for (const auto e : shape) {
      if (e == 0) return;
      if (total > (std::int64_t{1} << 60) / e)
        throw error("a tensor of shape " + std::string(detail::shape_text(shape).view()) + " has more than 2^60 bytes");
      total *= e;
    }
  }

 private:
  detail::sharding resolve(const std::vector<std::string>& dims, int rank, const char* op, location at,
                           const std::string& partial_axes = {}, monoid kind = monoid::add) {
    if (dims.size() == 1 && dims[0].starts_with('{') && partial_axes.empty()) {
      const auto r = detail::resolve_xla(mesh_.info(), dims[0], rank);
      if (!r.problem.empty()) graph_->fail(at, op, r.broken, r.problem);
      return r.value;
    }
    std::vector<dim_spec> specs;
    for (const auto& d : dims) {
      if (d.size() > 63) throw error(std::string(op) + ": at most 63 characters for a dim");
      specs.emplace_back(std::string_view(d));
    }
    const auto r = detail::resolve(mesh_.info(), specs.data(), static_cast<int>(specs.size()), rank, partial_axes, kind);
    if (!r.problem.empty()) graph_->fail(at, op, r.broken, r.problem);
    return r.value;
  }

  dynamic::mesh mesh_;
  std::shared_ptr<detail::kept_functions> functions_ = std::make_shared<detail::kept_functions>();
  std::unique_ptr<detail::graph> graph_;
};

/// Compiles a callable, the same that `gspmd::compile` takes, for a mesh and inputs that are known at run time. An input may
/// also be one of the static path: what its type says is known when compiling, only the mesh is not. Throws gspmd::error with
/// the first mistake, in the words of the compile error.
///
///     auto step = dynamic::compile(mlp, m, dynamic::in<float>({n, 512}, {"data", ""}), in<float, dims<512, 2048>>{});
///     auto y = step.run(threads{}, x, w)[0];
template <class Callable, class... Inputs>
program compile(Callable&& callable, const mesh& m, const Inputs&... inputs) {
  builder b(m);
  const auto trace = [&b](const auto& given) {
    if constexpr (requires { b.input(given, location{}); }) return b.input(given, location::input(b.input_count()));
    else return b.input(given);
  };
  std::tuple<decltype(trace(inputs))...> arguments{trace(inputs)...};
  static_assert(std::is_invocable_v<Callable, decltype(trace(inputs))&...>,
                "gspmd: compile: give one input for each argument of the callable; a record is one argument");
  auto result = std::apply(callable, arguments);
  detail::for_each_leaf(result, [&b](value& leaf) { b.output(leaf, location{"of the callable"}); });
  return b.compile();
}

}  // namespace gspmd::dynamic
