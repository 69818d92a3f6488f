// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gspmd/budget.hpp"
#include "gspmd/detail/exec/bound_devices.hpp"
#include "gspmd/detail/exec/interpreter.hpp"
#include "gspmd/detail/exec/step_checks.hpp"
#include "gspmd/detail/passes/canonical.hpp"
#include "gspmd/detail/passes/make_plan.hpp"
#include "gspmd/run.hpp"

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
  [[nodiscard]] std::int64_t device_count() const { return held_->info.shape.device_count(); }

 private:
  struct held {  // plans point into it
    detail::mesh_info info;
    std::vector<std::int32_t> order;
    std::vector<std::int32_t> position;
  };
  std::shared_ptr<held> held_;
};

/// An input of a program. `sharding` has one entry for each dim, as in `split`: "data", "data,model", "" or "?"; none at all
/// leaves the input to completion.
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
  program(mesh m, detail::graph g) : mesh_(std::move(m)) {
    if (g.failed()) throw error(std::string(g.error.view()));
    auto made = std::make_shared<detail::plan>(detail::make_plan(g, mesh_.info().shape));
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
  /// What one device sends, on the usual ring and direct algorithms (of uneven shards: what it receives at most).
  [[nodiscard]] std::int64_t bytes_sent_per_device() const { return detail::bytes_over(view_, ~detail::axis_mask{0}); }
  /// Inputs, outputs and everything between them, on one device.
  [[nodiscard]] std::int64_t peak_bytes_per_device() const { return detail::peak_bytes(view_); }
  /// What the `mpi` backend may add to it, to pack messages.
  [[nodiscard]] std::int64_t packing_bytes_per_device() const { return detail::packing_bytes(view_); }

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

  dynamic::mesh mesh_;
  std::shared_ptr<const detail::plan> plan_;
  detail::plan_view view_;
};

/// The scratch memory of the devices that one communicator holds; runs the program on shards.
class session {
 public:
  explicit session(const program& p) : program_(p), steps_(p.view()) {}

  /// Runs on the devices of `comm`: `inputs[d * inputs + k]` is the shard of input k on its device d, dense, row-major, of
  /// the local extents. After the first call nothing is allocated.
  template <communicator Comm>
  void run(Comm& comm, const void* const* inputs, void* const* outputs) {
    const auto& view = program_.view();
    bound_.bind(comm, view);
    detail::check_memory(view, bound_.devices.size(), inputs, outputs);
    for (std::size_t d = 0; d < bound_.devices.size(); ++d) {
      bound_.devices[d].inputs = inputs + d * view.inputs.size();
      bound_.devices[d].outputs = outputs + d * view.outputs.size();
    }
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
  void output(value v) {
    if (v.is_valid()) graph_->outputs.push_back(v.id());
  }
  /// The identity, sharded so: one entry for each dim, as in `split`.
  value reshard(value x, const std::vector<std::string>& sharding, location at = location::current()) {
    if (!x.is_valid()) return {};
    const auto s = resolve(sharding, x.rank(), "reshard", at);
    return {graph_.get(), graph_->failed() ? -1 : detail::add_reshard(*graph_, x.id(), s, at)};
  }
  [[nodiscard]] detail::graph& graph() { return *graph_; }

  /// Throws gspmd::error with the first mistake: operator, line, dim or axis, and the way out.
  [[nodiscard]] program compile() const {
    if (graph_->failed()) throw error(std::string(graph_->error.view()));
    return {mesh_, detail::canonical_order(*graph_)};
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
  std::unique_ptr<detail::graph> graph_;
};

/// Compiles a callable, the same that `gspmd::compile` takes, for a mesh and inputs that are known at run time.
///
///     auto step = dynamic::compile(mlp, m, dynamic::in<float>({n, 512}, {"data", ""}), dynamic::in<float>({512, 2048}));
///     auto y = step.run(threads{}, x, w)[0];
template <class Callable, class... Inputs>
program compile(Callable&& callable, const mesh& m, const Inputs&... inputs) {
  builder b(m);
  int number = 0;
  auto arguments = std::tuple{b.input(inputs, location{"input", number++})...};
  auto result = std::apply(callable, arguments);
  detail::for_each_leaf(result, [&b](value& leaf) { b.output(leaf); });
  return b.compile();
}

}  // namespace gspmd::dynamic
