// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gspmd/detail/ops/modes/strict_nodes.hpp"
#include "gspmd/detail/passes/typed/backward.hpp"
#include "gspmd/detail/passes/typed/find_types.hpp"
#include "gspmd/dynamic/builder.hpp"
#include "gspmd/modes/tensor.hpp"

/// Programs that write all their communication: the explicit mode (global view) and the manual mode (local view),
/// checked at run time. gspmd inserts no communication. If communication is missing, an error lists the ways to write
/// it.
namespace gspmd {

/// The state of a value along one mesh axis: the relation between the data of the devices along the axis. The states
/// are `state::constant`, `replica`, `invariant`, `varying`, `shard` (of a dim) and `partial` (by a monoid). See
/// GLOSSARY.md.
using detail::axis_state;
using detail::state;
/// The kind of a transition. `transition_kind::convert` keeps the value and sends nothing forward.
using detail::transition_kind;

namespace dynamic {

/// The states of a value along all axes of the mesh, in the order of the axes.
///
/// If several axes split one dim in the global view, `order` lists them as pairs of axis number and dim, major to
/// minor. Axes that `order` omits follow in the order of the mesh.
struct value_states {
  std::vector<axis_state> on;
  std::vector<std::pair<int, int>> order{};  // axis, dim
  friend bool operator==(const value_states&, const value_states&) = default;

  /// Returns the type with these states, also along automatic axes, which other types omit. `local` is the mask of the
  /// local view's axes.
  [[nodiscard]] detail::value_type type(detail::axis_mask local) const {
    auto t = detail::value_type::of({});
    const auto is_local = [local](int a) { return (local & detail::axis_bit(a)) != 0; };
    for (const auto& [axis, dim] : order)
      if (is_local(axis)) t.parts.cut(axis, dim);
      else t.set(axis, detail::shard_of(dim));
    for (int a = 0; a < static_cast<int>(on.size()); ++a) {  // axes without an order: in the order of the mesh
      const auto& is = on[static_cast<std::size_t>(a)];
      if (is_local(a) || is.is != state::shard) t.hold(a, is);
      else if ((t.layout.split_axes() & detail::axis_bit(a)) == 0) t.set(a, is);
    }
    return t;
  }
  /// Returns the states of a type. Types omit automatic axes; along those the state is reported as invariant.
  static value_states of(const detail::mesh_info& mesh, const detail::value_type& t) {
    value_states s;
    for (int a = 0; a < mesh.shape.axis_count(); ++a)
      s.on.push_back((mesh.automatic_axes & detail::axis_bit(a)) != 0 ? axis_state{state::invariant} : t.on(a));
    for (const auto& use : t.layout.splits) s.order.emplace_back(use.axis, use.dim);
    return s;
  }
};

/// A mistake and its remedies, cheapest first.
struct mode_error {
  std::string kind;  // from a closed list: "state_conflict"
  int label = -1;    // label of the value, see builder::label
  int operand = -1;  // -1: no operand
  std::string axis;  // empty: no axis
  std::string text;
  std::vector<std::string> remedies;
};

/// A collective of a program, in the forward pass or in the gradient.
struct written_collective {
  std::string kind;
  int label = -1;
  std::string axes;  // "x,y"
  std::int64_t bytes = 0;
};

/// Checks a program of the explicit or the manual mode while it is built, and infers the states of its values.
///
/// **Threads.** Only the thread of the builder may use it.
/// **Example.**
///
///     dynamic::builder b(m);                             dynamic::strict_program p(b, "");  // "": explicit mode
///     auto x = b.input(dynamic::input<float>({8, 4}));      p.input(x, {{axis_state{state::partial}}});
///     auto y = p.transition(x, transition_kind::all_reduce, "x", {state::partial}, {state::invariant});
///     p.check();                                         // p.errors() is empty; p.collectives() is one all_reduce
class strict_program {
 public:
  /// `manual` lists the axes of the local view, for example "x,y". Shapes are those of a shard along these axes.
  strict_program(builder& b, std::string_view manual) : builder_(b), typer_(b.graph(), b.mesh().info(), 0) {
    set_manual(manual);
    if (manual.empty() && detail::has_typed_axes(mesh())) detail::make_explicit(b.graph());
  }
  strict_program(const strict_program&) = delete;

  /// Makes these axes manual from now on, at the start of a region's body. Returns the previous manual axes.
  std::string set_manual(std::string_view axes) {
    const std::string before(detail::axes_text(mesh(), typer_.local()).view());
    typer_.set_local(axes_named(axes));
    return before;
  }
  /// Begins to refuse communication over these axes, because devices along these axes may take different branches.
  /// Returns the previous axes.
  std::string set_diverging(std::string_view axes) {
    const std::string before(detail::axes_text(mesh(), typer_.diverging()).view());
    typer_.set_diverging(axes_named(axes));
    return before;
  }

  /// Sets the states of an input.
  void input(value x, const value_states& s, bool has_gradient = true) {
    auto says = s.type(typer_.local());
    if (!has_gradient) {
      without_gradient_.push_back(x.id());
      for (int a = 0; a < mesh().shape.axis_count(); ++a)
        if (!typer_.is_automatic(a)) says.hold(a, detail::without_gradient(says.on(a)));
    }
    typer_.run();
    typer_.give(x.id(), says.without(automatic()));
    if (!is_planned()) return;
    auto& n = builder_.graph().nodes[static_cast<std::size_t>(x.id())];
    n.annotated = true;
    n.annotation = says.layout;
  }
  /// Declares that `x` represents `other`: the input or the result of a region. Gradients pass through it.
  void stands_for(value x, value other) { links_.push_back({x.id(), other.id()}); }
  /// Requires a result to have exactly these states. If it is constant or a replica, it is split as required, without
  /// communication. Returns the value with these states.
  value want(value x, const value_states& s, location at = location::current()) {
    const auto says = s.type(typer_.local());
    typer_.want(x.id(), says.without(automatic()));
    if (!is_planned() || typer_.local() != 0) return x;
    typer_.run();
    return states(x) ? requested(x, says, at) : x;
  }
  /// Returns `x` with these states.
  value reshard(value x, const value_states& s, location at = location::current()) {
    const auto says = s.type(typer_.local());
    if (is_planned() && typer_.local() == 0) return requested(x, says, at);
    const value made = builder_.reshard(x, std::vector<std::string>(static_cast<std::size_t>(x.rank())), at);
    if (made.is_valid()) typer_.want(made.id(), says.without(automatic()));
    return made;
  }

  /// Changes a value from one state to another along `axes`. For a permutation, `pairs` lists source and target
  /// devices, row-major over the axes.
  value transition(value x, transition_kind by, std::string_view axes, axis_state from, axis_state to,
                   const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs = {}, location at = location::current()) {
    const auto mask = axes_named(axes);
    const bool is_local = mask != 0 && (mask & ~typer_.local()) == 0;
    const value made{x.graph(), detail::add_transition(*x.graph(), x.id(), {by, mask, from, to}, is_local, at)};
    if (by == transition_kind::permute && made.is_valid()) check_permutation(made, mesh().shape.size_of(mask), pairs);
    return made;
  }
  /// Returns f(arguments...), and permits its operators to exchange elements along `axes`: see gspmd::with_exchange.
  template <class F, class... Arguments>
  auto with_exchange(std::string_view axes, F f, const Arguments&... arguments) {
    return detail::exchanging(axes, f, arguments...);
  }
  /// Returns the position of a device along an axis, as a varying value.
  value axis_index(std::string_view axis, location at = location::current()) {
    int a = 0;
    while (a < mesh().shape.axis_count() && (axes_named(axis) & detail::axis_bit(a)) == 0) ++a;
    return {&builder_.graph(), detail::add_axis_index(builder_.graph(), a, at)};
  }
  /// The class of a function with no other known properties. It is linear in no operand, in all operands together, or
  /// in each operand separately; or it selects by its operands and does not compute with them.
  enum class opaque_class { nonlinear, linear, multilinear, selects };
  value opaque(dtype type, integers shape, const std::vector<value>& operands, opaque_class is,
               location at = location::current()) {
    std::vector<int> ids;
    for (const auto& o : operands) ids.push_back(o.id());
    using detail::partial_class;
    detail::operator_class c;
    if (is == opaque_class::linear) c.takes = partial_class::all;
    if (is == opaque_class::multilinear) c.takes = partial_class::one;
    if (is == opaque_class::selects) c.selectors = detail::every_operand;
    return {&builder_.graph(), detail::add_opaque(builder_.graph(), type, detail::extents_of(shape), ids, c, at)};
  }

  /// Returns a value that a predicate selects, the result of a conditional. If the predicate is equal on all devices,
  /// its mistakes have the kind branch_mismatch.
  value choice(value predicate, const std::vector<value>& of, location at = location::current()) {
    std::vector<int> ids{predicate.id()};
    for (const auto& v : of) ids.push_back(v.id());
    const value made{&builder_.graph(), detail::add_choice(builder_.graph(), ids, at)};
    const auto before = typer_.mistakes.size();
    typer_.run();
    const auto p = states(predicate);
    for (auto k = before; k < typer_.mistakes.size(); ++k)
      if (auto& m = typer_.mistakes[k];
          m.node == made.id() && m.axis >= 0 && p->on[static_cast<std::size_t>(m.axis)].is != state::varying && m.operand > 0)
        m.kind = detail::mode_mistake::branch_mismatch;
    return made;
  }
  /// Returns true if every element of a value is known or assumed to be 0.
  [[nodiscard]] bool may_be_zeros(value x) const { return typer_.may_be_zeros(x.id()); }
  /// Assumes that an input is zero, so that partial sums may be added to it. The input represents a carried value of a
  /// loop. If the loop turns out to carry no partial sum, check the body again without this assumption.
  void believe_zeros(value x) { typer_.zeros.push_back(x.id()); }

  /// Infers the types of the nodes that were added since the last call. Operators that are added later use these types.
  void check() { typer_.run(); }
  /// Skips the nodes that were added since the last call, because they have a mistake of another kind.
  void skip() { typer_.skip(); }
  /// Returns the program of the explicit mode, without manual regions. It sends the communication that was written.
  /// Throws gspmd::error with the first mistake.
  [[nodiscard]] program compile() {
    if (!is_planned()) throw error("a program with manual axes is checked and not planned");
    return builder_.compile();
  }
  /// Returns the states of a value, or nothing if the value was refused. Automatic axes are reported as invariant.
  [[nodiscard]] std::optional<value_states> states(value x) const { return states_of(typer_, x); }
  /// Returns the states that the value built last would have, before any requirement on it.
  [[nodiscard]] std::optional<value_states> states_of_last(value x) const {
    auto tried = typer_;
    tried.run();
    return states_of(tried, x);
  }
  /// Returns the collectives of the forward pass, in order.
  [[nodiscard]] std::vector<written_collective> collectives() const {
    std::vector<written_collective> list;
    for (const auto& s : typer_.steps)
      if (!s.sends.empty()) list.push_back(collective(s, s.sends, s.sent));
    return list;
  }
  /// Returns the collectives of the gradient of a value with respect to all inputs, in order.
  [[nodiscard]] std::vector<written_collective> backward_collectives(value of) const {
    std::vector<written_collective> list;
    for (const auto& s : detail::backward_steps(builder_.graph(), typer_.steps, of.id(), without_gradient_, links_))
      list.push_back(collective(s, s.sends_back, s.sent_back));
    return list;
  }
  /// Checks the state of a loss. Its gradient starts with 1 on each device, which is correct only if the loss is
  /// invariant, constant or a partial sum.
  void check_loss(value loss) {
    const auto s = states(loss);
    if (!s) return;
    if (loss.rank() != 0 || !detail::is_floating(loss.type()))
      refuse("loss_state", loss, -1, "", "a loss is a float of rank 0; sum it, or name a cotangent");
    for (std::size_t a = 0; a < s->on.size(); ++a) {
      const auto is = s->on[a].is;
      if (is == state::invariant || is == state::constant || (is == state::partial && s->on[a].reduced_by == monoid::add))
        continue;
      const auto axis = axis_name(static_cast<int>(a));
      refuse("loss_state", loss, -1, axis,
             std::string("the loss is ") + std::string(detail::long_text(s->on[a]).view()) + " over `" + axis +
                 "`: begun with 1 on each device, its gradient would be another one; make it a partial sum, or invariant");
    }
  }
  /// Adds a mistake that the caller has found.
  void refuse(const char* kind, value x, int operand, const std::string& axis, const std::string& what) {
    found_.push_back({kind, x.is_valid() ? x.node().tag : -1, operand, axis, what, {}});
    found_at_.push_back(typer_.mistakes.size());
  }
  [[nodiscard]] std::vector<mode_error> errors() const {
    std::vector<mode_error> list;
    std::size_t mine = 0;
    for (std::size_t k = 0; k <= typer_.mistakes.size(); ++k) {
      for (; mine < found_.size() && found_at_[mine] <= k; ++mine) list.push_back(found_[mine]);
      if (k == typer_.mistakes.size()) break;
      const auto& m = typer_.mistakes[k];
      mode_error e{std::string(detail::name_of(m.kind)),
                   tag_of(m.node),
                   m.operand,
                   m.axis < 0 ? "" : axis_name(m.axis),
                   std::string(m.what.view()),
                   {}};
      for (const auto& r : m.remedies) e.remedies.emplace_back(r.view());
      list.push_back(std::move(e));
    }
    return list;
  }
  /// Returns the mask of the axes in a list of names, for example "x,y". Throws gspmd::error if an axis does not exist.
  [[nodiscard]] detail::axis_mask axes_named(std::string_view names) const {
    detail::axis_mask axes = 0;
    while (!names.empty()) {
      const auto name = names.substr(0, names.find(','));
      names.remove_prefix(name.size() < names.size() ? name.size() + 1 : name.size());
      const auto found = builder_.mesh().find(std::string(name));
      if (found.empty())
        throw error("`" + std::string(name) + "` is not an axis of the mesh; its axes are: " + builder_.mesh().names());
      for (const auto a : found) axes |= detail::axis_bit(static_cast<int>(a));
    }
    return axes;
  }
  [[nodiscard]] std::size_t error_count() const { return typer_.mistakes.size() + found_.size(); }
  /// A position to return to: back_to() discards the errors and collectives since then, before a body is checked again.
  struct mark {
    std::size_t mistakes, found, steps;
  };
  [[nodiscard]] mark here() const { return {typer_.mistakes.size(), found_.size(), typer_.steps.size()}; }
  void back_to(const mark& m) {
    typer_.mistakes.resize(m.mistakes);
    found_.resize(m.found);
    found_at_.resize(m.found);
    typer_.steps.resize(m.steps);
  }

 private:
  [[nodiscard]] const detail::mesh_info& mesh() const { return builder_.mesh().info(); }
  [[nodiscard]] bool is_planned() { return builder_.graph().is_explicit; }
  [[nodiscard]] detail::axis_mask automatic() const { return mesh().automatic_axes; }
  [[nodiscard]] std::optional<value_states> states_of(const detail::program_typer& t, value x) const {
    const auto i = static_cast<std::size_t>(x.id());
    if (!x.is_valid() || i >= t.types.size() || !t.types[i].is_known) return {};
    return value_states::of(mesh(), t.types[i]);
  }
  value requested(value x, const detail::value_type& says, location at) {
    return {x.graph(), detail::add_requested_state(*x.graph(), x.id(), says.requested(mesh(), ~detail::axis_mask{0}), at)};
  }
  [[nodiscard]] std::string axis_name(int a) const { return std::string(detail::axes_text(mesh(), detail::axis_bit(a)).view()); }
  [[nodiscard]] int tag_of(int node) const { return node < 0 ? -1 : builder_.graph().nodes[static_cast<std::size_t>(node)].tag; }
  [[nodiscard]] written_collective collective(const detail::typed_step& s, std::string_view kind, std::int64_t bytes) const {
    return {std::string(kind), tag_of(s.node), std::string(detail::axes_text(mesh(), s.axes).view()), bytes};
  }
  void check_permutation(value made, std::int64_t n, const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs) {
    std::vector<char> from(static_cast<std::size_t>(n), 0), to(static_cast<std::size_t>(n), 0);
    for (const auto& [a, b] : pairs) {
      const bool is_there = a >= 0 && a < n && b >= 0 && b < n;
      if (!is_there || from[static_cast<std::size_t>(a)]++ != 0 || to[static_cast<std::size_t>(b)]++ != 0) {
        typer_.refuse(detail::mode_mistake::bad_permutation, made.id(), 0, -1,
                      detail::text("the pair [") << a << ", " << b << "]: each of the " << n
                                                 << " devices sends to one at most and gets from one at most");
        return;
      }
    }
  }

  builder& builder_;
  detail::program_typer typer_;
  std::vector<int> without_gradient_;
  std::vector<detail::stand_for> links_;
  std::vector<mode_error> found_;
  std::vector<std::size_t> found_at_;  // number of mistakes of the library before each mistake of the caller
};

}  // namespace dynamic
}  // namespace gspmd
