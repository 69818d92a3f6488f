// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ir/struct_members.hpp"
#include "gspmd/detail/ops/own/kept_functions.hpp"
#include "gspmd/detail/passes/list/at_run_time.hpp"
#include "gspmd/dynamic/program.hpp"
#include "gspmd/layouts/xla_sharding.hpp"
#include "gspmd/ops/integers.hpp"
#include "gspmd/ops/named.hpp"
#include "gspmd/ops/shape.hpp"

namespace gspmd::dynamic {

/// An input of a program. `sharding` has one entry for each dim, as in `split`: "data", "data,model", "" or "?". If
/// `annotated` is false, completion infers the sharding. A single entry may be XLA's text for all dims:
/// "{devices=[2,1]<=[2]}".
struct input_spec {
  dtype type = dtype::f32;
  std::vector<std::int64_t> shape;
  std::vector<std::string> sharding;
  bool annotated = false;
  std::string partial_axes;
  monoid partial_kind = monoid::add;
};
}  // namespace gspmd::dynamic
template <>
inline constexpr bool gspmd::detail::is_leaf_struct<gspmd::dynamic::input_spec> = true;
namespace gspmd::dynamic {

/// Returns an input with element type T.
template <class T>
input_spec input(std::vector<std::int64_t> shape) {
  static_assert(!detail::own_element<T>,
                "gspmd: dynamic::input: an element type of your own has no run-time path; use gspmd::compile");
  return {detail::dtype_of<T>(), std::move(shape), {}, false, {}, monoid::add};
}
template <class T>
input_spec input(std::vector<std::int64_t> shape, std::vector<std::string> sharding) {
  static_assert(!detail::own_element<T>,
                "gspmd: dynamic::input: an element type of your own has no run-time path; use gspmd::compile");
  return {detail::dtype_of<T>(), std::move(shape), std::move(sharding), true, {}, monoid::add};
}

/// Builds a program by calls at run time.
///
/// **Threads.** A builder and its values belong to one thread. Different builders are independent.
/// **Example.**
///
///     dynamic::builder b(m);
///     auto x = b.input(dynamic::input<float>({n, 512}, {"data", ""}));
///     auto w = b.input(dynamic::input<float>({512, 64}));
///     b.output(relu(einsum("bd,df->bf", x, w)));
///     auto step = b.compile();
class builder {
 public:
  explicit builder(dynamic::mesh m) : mesh_(std::move(m)), graph_(std::make_unique<detail::graph>()) {
    graph_->mesh = &mesh_.info();
    graph_->allow_replication = false;
    graph_->functions = functions_.get();
  }

  value input(const dynamic::input_spec& given, location at = location::current()) {
    const auto shape = checked_shape(given.shape, "input");
    const int id = detail::add_parameter(*graph_, given.type, shape, location::input(input_count()));
    if (given.annotated) {
      auto& n = graph_->nodes[static_cast<std::size_t>(id)];
      n.annotated = true;
      n.annotation =
          resolve(given.sharding, static_cast<int>(given.shape.size()), "input", at, given.partial_axes, given.partial_kind);
    }
    return {graph_.get(), id};
  }
  /// Adds an input whose type states everything, or a `record` of such inputs, as for `compile`. Axes are looked up in
  /// this mesh.
  ///
  ///     auto x = b.input(input<float, shape<64, 512>, split<"data", _>>{});
  template <class Input>
    requires requires { Input::leaves; }
  auto input(const Input& given) {
    return given.trace(*graph_, static_cast<int>(graph_->inputs.size()));
  }
  void output(value v, location at = location::current()) {
    if (v.is_valid() && v.graph() == graph_.get()) graph_->outputs.push_back(v.id());
    else graph_->fail(at, "output", detail::mistake::other, "this is no value of this program; pass a result of an operator");
  }
  /// Returns `x` with this sharding: one entry for each dim, as in `split`.
  value reshard(value x, const std::vector<std::string>& sharding, location at = location::current()) {
    if (!x.is_valid()) return {};
    const auto s = resolve(sharding, x.rank(), "reshard", at);
    if (graph_->failed()) return x;
    return {graph_.get(), detail::add_reshard(*graph_, x.id(), s, at)};
  }
  /// Return a tensor filled with one number, and a tensor whose elements are their index along `dim`. The type is known
  /// at run time.
  value constant(dtype type, integers shape, detail::written_number number, location at = location::current()) {
    const auto e = checked_shape(shape, "constant");
    return detail::made(*graph_, detail::add_number(*graph_, number, type, e, "constant", at), type, e);
  }
  value iota(dtype type, integers shape, int dim, location at = location::current()) {
    const auto e = checked_shape(shape, "iota");
    return detail::made(*graph_, detail::add_iota(*graph_, type, e, detail::counted_dim(dim, e.count), at), type, e);
  }
  /// Annotates an input or another value with a sharding. `reshard` instead adds a new value.
  void annotate(value x, const std::vector<std::string>& sharding, location at = location::current()) {
    if (!x.is_valid()) return;
    auto& n = graph_->nodes[static_cast<std::size_t>(x.id())];
    n.annotated = true;
    n.annotation = resolve(sharding, x.rank(), "annotate", at);
  }
  /// Names an input. Messages and reports write the name after its number: `input 2 (w1)`.
  void name(value input, const std::string& name) {
    if (!input.is_valid()) return;
    auto& at = graph_->nodes[static_cast<std::size_t>(input.id())].at;
    at = location::input(at.number(), functions_->keep(name)->c_str());
  }
  /// Opens the scope with this path, for example `layer[3]/attention`, inside the open scope. Operators that are added
  /// later belong to it; see `named`. The same path always names the same scope. A name may end in a number in
  /// brackets. Throws gspmd::error if a name is not valid.
  void enter_scope(std::string_view path) {
    while (true) {
      const auto name = path.substr(0, path.find('/'));
      if (!may_be_counted_name(name))
        throw error("a scope is a path of names like layer[3]/attention; `[` and `]` enclose a number at the end of a name");
      auto& number = scopes_.try_emplace({graph_->open_scope, std::string(name)}, -1).first->second;
      if (number < 0) {
        number = static_cast<int>(graph_->scopes.size());
        graph_->scopes.push_back({functions_->keep(std::string(name))->c_str(), graph_->open_scope});
      }
      graph_->open_scope = number;
      if (name.size() == path.size()) return;
      path.remove_prefix(name.size() + 1);
    }
  }
  /// Return the open scope, and reopen an earlier scope.
  [[nodiscard]] int open_scope() const { return graph_->open_scope; }
  void leave_scope(int to) { graph_->open_scope = to; }
  /// Permits operators to gather operands that cannot stay split, as gspmd::allow_replication does for one operator.
  void allow_replication() { graph_->allow_replication = true; }
  /// Labels all nodes that were added since the last call; an operator may have several nodes. `inspection` refers to
  /// values by these labels.
  void label(int number) {
    for (; labelled_ < graph_->nodes.size(); ++labelled_) graph_->nodes[labelled_].tag = number;
  }
  /// The same if the number labels `v`. Nodes after `v`, which are unused results of its operator, get no label.
  void label_up_to(value v, int number) {
    const auto first = labelled_;
    label(number);
    if (!v.is_valid() || static_cast<std::size_t>(v.id()) < first) return;
    for (auto i = static_cast<std::size_t>(v.id()) + 1; i < graph_->nodes.size(); ++i) graph_->nodes[i].tag = -1;
  }
  /// Changes the label of a single value, for example an operator's second result.
  void label(value v, int number) {
    if (v.is_valid()) graph_->nodes[static_cast<std::size_t>(v.id())].tag = number;
  }
  /// Returns the text of the first mistake since the last call, or an empty text, and clears it. Use it to report
  /// several mistakes. A value that was built with a mistake must not be used.
  [[nodiscard]] std::string take_mistake() {
    std::string text(graph_->error.view());
    graph_->error = {};
    return text;
  }
  [[nodiscard]] detail::graph& graph() { return *graph_; }
  [[nodiscard]] const detail::graph& graph() const { return *graph_; }
  [[nodiscard]] const dynamic::mesh& mesh() const { return mesh_; }
  [[nodiscard]] int input_count() const { return static_cast<int>(graph_->inputs.size()); }

  /// Returns the compiled program. Throws gspmd::error with the first mistake: operator, line, dim or axis, and remedy.
  [[nodiscard]] program compile() const { return {mesh_, canonical_graph(), functions_}; }
  /// Returns the graph that compile() plans. Throws the same errors.
  [[nodiscard]] detail::graph canonical_graph() const { return canonical_graph(*graph_); }
  /// The same for another graph, for example this one with other annotations.
  [[nodiscard]] static detail::graph canonical_graph(const detail::graph& g) {
    if (g.failed()) throw error(std::string(g.error.view()));
    detail::graph planned = detail::program_to_plan_at_run_time(g);
    if (planned.failed()) throw error(std::string(planned.error.view()));
    return planned;
  }
  [[nodiscard]] std::shared_ptr<const detail::kept_functions> functions() const { return functions_; }

 private:
  /// Returns true for a name, or a name with a number in brackets: `layer[3]`.
  [[nodiscard]] static bool may_be_counted_name(std::string_view name) {
    const auto begin = name.find('[');
    if (begin == std::string_view::npos) return detail::may_be_name(name);
    const auto number = name.substr(begin + 1);
    return detail::may_be_name(name.substr(0, begin)) && number.size() > 1 && number.back() == ']' &&
           number.find_first_not_of("0123456789") == number.size() - 1;
  }
  static detail::extents checked_shape(integers shape, const char* op) {
    if (shape.size() > static_cast<std::size_t>(detail::max_rank))
      throw error(std::string(op) + ": a tensor has at most 32 dims");
    return detail::extents_of(shape);
  }
  detail::annotation resolve(const std::vector<std::string>& dims, int rank, const char* op, location at,
                             const std::string& partial_axes = {}, monoid kind = monoid::add) {
    if (dims.size() == 1 && dims[0].starts_with('{') && partial_axes.empty()) {
      const auto r = detail::resolve_xla_at_run_time(mesh_.info(), dims[0], rank);
      if (!r.problem.empty()) graph_->fail(at, op, r.broken, r.problem);
      return r.value;
    }
    const auto r = detail::resolve(mesh_.info(), dims.data(), static_cast<int>(dims.size()), rank, partial_axes, kind);
    if (!r.problem.empty()) graph_->fail(at, op, r.broken, r.problem);
    return r.value;
  }

  dynamic::mesh mesh_;
  std::shared_ptr<detail::kept_functions> functions_ = std::make_shared<detail::kept_functions>();
  std::unique_ptr<detail::graph> graph_;
  std::size_t labelled_ = 0;                           // nodes
  std::map<std::pair<int, std::string>, int> scopes_;  // key: the enclosing scope and the name
};

}  // namespace gspmd::dynamic
