// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "gspmd/detail/support/mistake.hpp"
#include "gspmd/detail/support/text.hpp"

/// Compile-time errors with computed text: the facts are in a type, the words are in the static_assert, and there is
/// only one error.
namespace gspmd {

/// A line of a message. Compilers print it as text because its last element is a zero. Clang prints at most 36
/// characters.
struct line {
  static constexpr std::size_t width = 36;
  char chars[width + 1]{};

  constexpr line() = default;
  constexpr line(std::string_view s) {  // NOLINT: implicit on purpose
    for (std::size_t i = 0; i < width; ++i) chars[i] = i < s.size() ? s[i] : ' ';
    chars[width] = '\0';
  }
};

/// The text of a mistake in a program. Read its lines in order.
template <line... Lines>
struct message {};

namespace detail {

template <class Message>
inline constexpr bool accepted = false;

/// A text in lines, broken at spaces if possible.
struct message_lines {
  static constexpr std::size_t most = 24;
  line at[most]{};
  std::size_t count = 0;

  constexpr explicit message_lines(std::string_view s) {
    while (!s.empty() && count < most) {
      std::size_t n = s.size() < line::width ? s.size() : line::width;
      if (n < s.size()) {
        std::size_t k = n;
        while (k > 0 && s[k - 1] != ' ') --k;
        if (k > 0) n = k;
      }
      at[count++] = line(s.substr(0, n));
      s.remove_prefix(n);
    }
  }
};

/// The message type of the text that `Text::make()` returns. The text is computed only when there is an error.
template <class Text>
struct message_of {
  static constexpr message_lines in_lines = [] {
    const text t = Text::make();  // Clang 16 requires its destruction before the constant is complete
    return message_lines(t.view());
  }();
  template <std::size_t... Index>
  static auto type_for(std::index_sequence<Index...>) -> message<in_lines.at[Index]...>;
  using type = decltype(type_for(std::make_index_sequence<in_lines.count>{}));
};

#if defined(__cpp_static_assert) && __cpp_static_assert >= 202306L  // C++26: the error is the computed text itself

template <class Text>
struct sentence {
  static constexpr std::size_t length = [] {
    const text t = Text::make();
    return t.view().size();
  }();
  struct holder {
    char chars[length + 8]{};
  };
  static constexpr holder held = [] {
    const text t = text("gspmd: ") << Text::make();
    holder h;
    for (std::size_t i = 0; i < t.view().size(); ++i) h.chars[i] = t.view()[i];
    return h;
  }();
  [[nodiscard]] constexpr std::size_t size() const { return length + 7; }
  [[nodiscard]] constexpr const char* data() const { return held.chars; }
};

template <mistake Broken, class Text, bool Accepted = false>
consteval void refuse() {
  static_assert(Accepted, sentence<Text>{});
}

#else

/// Fails to compile with one error: the rule in words, and the text of `Text::make()` in the name of a type. Call it in
/// a branch that is instantiated only if there is an error.
template <mistake Broken, class Text, class Message = typename message_of<Text>::type>
consteval void refuse() {
  if constexpr (Broken == mistake::equation)
    static_assert(accepted<Message>, "gspmd: an einsum equation has the form `ab,bc->ac`; see the column that message<> names");
  else if constexpr (Broken == mistake::operand_count)
    static_assert(accepted<Message>, "gspmd: another number of operands than the operator takes; see message<>");
  else if constexpr (Broken == mistake::rank)
    static_assert(
        accepted<Message>,
        "gspmd: a tensor has another number of dims than the operator names; name each dim once, or reshape; see message<>");
  else if constexpr (Broken == mistake::extent)
    static_assert(accepted<Message>, "gspmd: extents that must be equal differ; correct one tensor; see message<>");
  else if constexpr (Broken == mistake::size)
    static_assert(accepted<Message>,
                  "gspmd: a tensor has at most 2^60 bytes and no negative extent; correct its shape; see message<>");
  else if constexpr (Broken == mistake::type)
    static_assert(accepted<Message>,
                  "gspmd: an operand has an element type that the operator does not take; convert it; see message<>");
  else if constexpr (Broken == mistake::number)
    static_assert(accepted<Message>,
                  "gspmd: the element type of a tensor cannot represent a number exactly; convert the tensor; see message<>");
  else if constexpr (Broken == mistake::dim)
    static_assert(
        accepted<Message>,
        "gspmd: the tensor does not have a named dim, or the operator does not accept it; dims count from 0; see message<>");
  else if constexpr (Broken == mistake::element_count)
    static_assert(accepted<Message>, "gspmd: reshape keeps the number of elements; see message<>");
  else if constexpr (Broken == mistake::bounds)
    static_assert(accepted<Message>,
                  "gspmd: a slice or padding takes more elements than a dim has, or its stride is less than 1; see message<>");
  else if constexpr (Broken == mistake::radius)
    static_assert(accepted<Message>, "gspmd: a stencil reads further than its radius says; see message<>");
  else if constexpr (Broken == mistake::window)
    static_assert(
        accepted<Message>,
        "gspmd: a window is no larger than the padded dim, and its size, stride and dilations are at least 1; see message<>");
  else if constexpr (Broken == mistake::layout)
    static_assert(accepted<Message>, "gspmd: the layout or the groups of a convolution do not fit its tensors; see message<>");
  else if constexpr (Broken == mistake::annotation_rank)
    static_assert(accepted<Message>,
                  "gspmd: a sharding has one entry for each dim of its tensor, _ for a dim that is not split; see message<>");
  else if constexpr (Broken == mistake::unknown_axis)
    static_assert(accepted<Message>, "gspmd: this names an axis that the mesh does not have; see message<>");
  else if constexpr (Broken == mistake::network)
    static_assert(accepted<Message>,
                  "gspmd: a network says how the devices along every axis of a mesh are connected; see message<>");
  else if constexpr (Broken == mistake::axis_used_twice)
    static_assert(accepted<Message>,
                  "gspmd: a mesh axis splits at most one dim of a tensor; remove it from one dim; see message<>");
  else if constexpr (Broken == mistake::xla_sharding)
    static_assert(accepted<Message>,
                  "gspmd: an XLA sharding splits the dims of one value by whole axes of the mesh; see message<>");
  else if constexpr (Broken == mistake::placement)
    static_assert(accepted<Message>,
                  "gspmd: placements have one entry for each mesh axis, in the order of the mesh; see message<>");
  else if constexpr (Broken == mistake::parts)
    static_assert(accepted<Message>, "gspmd: no mesh axes have the requested number of devices; see message<>");
  else if constexpr (Broken == mistake::communication)
    static_assert(accepted<Message>,
                  "gspmd: forbid_reshard forbids this communication, or keep_split this gather; give the operands equal "
                  "shardings, or write the reshard; see message<>");
  else if constexpr (Broken == mistake::replication)
    static_assert(accepted<Message>,
                  "gspmd: an operator cannot keep the split of its operand and would gather it whole; reshard the operand, or "
                  "write allow_replication; see message<>");
  else if constexpr (Broken == mistake::gather_limit)
    static_assert(
        accepted<Message>,
        "gspmd: an operand of an einsum would be gathered to more than limit_gather allows, and cannot rotate in a ring; "
        "see message<>");
  else if constexpr (Broken == mistake::memory)
    static_assert(accepted<Message>, "gspmd: options: every known plan needs more memory than the limit; see message<>");
  else if constexpr (Broken == mistake::no_derivative)
    static_assert(
        accepted<Message>,
        "gspmd: grad needs the derivatives of a map; give with_derivative(f, df...), or with_gradient(f, g) to a local_op; "
        "see message<>");
  else if constexpr (Broken == mistake::no_scalar_loss)
    static_assert(accepted<Message>,
                  "gspmd: grad differentiates a float of rank 0; sum or mean the loss over all dims; see message<>");
  else if constexpr (Broken == mistake::region)
    static_assert(accepted<Message>, "gspmd: a body of a loop or conditional does not fit; see message<>");
  else if constexpr (Broken == mistake::states)
    static_assert(accepted<Message>,
                  "gspmd: a program with types has only the communication that you write, forward and backward; see message<>");
  else if constexpr (Broken == mistake::rule)
    static_assert(accepted<Message>,
                  "gspmd: local_op: a rule has the form `bi,io->bo` or `b[t]->b[u=t-2]`; see the column that message<> names");
  else if constexpr (Broken == mistake::law)
    static_assert(
        accepted<Message>,
        "gspmd: local_op: the function does not keep the law of its rule; mark a letter as whole, as in [t], or correct "
        "the function; see message<>");
  else if constexpr (Broken == mistake::facts)
    static_assert(accepted<Message>, "gspmd: two facts of an operator's struct contradict each other; message<> has both");
  else if constexpr (Broken == mistake::inputs)
    static_assert(accepted<Message>, "gspmd: compile: give one input for each argument of the callable; see message<>");
  else if constexpr (Broken == mistake::mesh_axes)
    static_assert(accepted<Message>, "gspmd: mesh: two axes have one name; rename one axis; see message<>");
  else if constexpr (Broken == mistake::device_order)
    static_assert(accepted<Message>, "gspmd: mesh: device_order must name every device id from 0 once; see message<>");
  else if constexpr (Broken == mistake::mesh_views)
    static_assert(accepted<Message>, "gspmd: mesh_views: these meshes are not views of one mesh; see message<>");
  else if constexpr (Broken == mistake::shard)
    static_assert(accepted<Message>, "gspmd: step: this is not the shard that the step takes here; see message<>");
  else if constexpr (Broken == mistake::arguments)
    static_assert(accepted<Message>,
                  "gspmd: pass one array for each input of the program, of the element type of the input; see message<>");
  else if constexpr (Broken == mistake::budget)
    static_assert(accepted<Message>,
                  "gspmd: the program is over its budget; raise the limit, or change the most expensive operator; see message<>");
  else if constexpr (Broken == mistake::collectives)
    static_assert(accepted<Message>, "gspmd: the program has other collectives than the list; see message<>");
  else static_assert(accepted<Message>, "gspmd: the program is refused; see message<>");
}

#endif

}  // namespace detail
}  // namespace gspmd
