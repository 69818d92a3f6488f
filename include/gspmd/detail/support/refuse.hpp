// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

/// Compile-time errors with computed text (the recipe: facts in the type, words in the static_assert, one error).
namespace gspmd {

/// A piece of a message. Compilers print it as text because its last element is a zero; Clang cuts it after 36 characters.
struct line {
  static constexpr std::size_t width = 36;
  char chars[width + 1]{};

  constexpr line(std::string_view s) {  // NOLINT: implicit on purpose
    for (std::size_t i = 0; i < width; ++i) chars[i] = i < s.size() ? s[i] : ' ';
    chars[width] = '\0';
  }
};

/// What is wrong with a program, in words: read its lines one after the other.
template <line... Lines>
struct message {};

namespace detail {

template <class Message>
inline constexpr bool accepted = false;

/// Cuts a text into lines at spaces where there are any.
template <std::size_t MaxLines>
struct cut_text {
  std::size_t begin[MaxLines]{};
  std::size_t count[MaxLines]{};
  std::size_t lines = 0;

  constexpr explicit cut_text(std::string_view s) {
    std::size_t at = 0;
    while (at < s.size() && lines < MaxLines) {
      std::size_t n = s.size() - at < line::width ? s.size() - at : line::width;
      if (at + n < s.size()) {
        std::size_t k = n;
        while (k > 0 && s[at + k - 1] != ' ') --k;
        if (k > 0) n = k;
      }
      begin[lines] = at;
      count[lines] = n;
      ++lines;
      at += n;
    }
  }
};

/// `Text::make()` gives the text; evaluated only here, when there is something to report.
template <class Text>
struct message_of {
  static constexpr cut_text<24> cut{Text::make().view()};
  template <std::size_t... I>
  static auto type_for(std::index_sequence<I...>) -> message<line(Text::make().view().substr(cut.begin[I], cut.count[I]))...>;
  using type = decltype(type_for(std::make_index_sequence<cut.lines>{}));
};

template <class Message>
struct refused_program {
  static consteval void report() {
    static_assert(accepted<Message>,
                  "gspmd: the program is refused; the message<> names the operator with its line, the dim or axis, and the way out");
  }
};

}  // namespace detail
}  // namespace gspmd
