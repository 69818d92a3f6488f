// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "gspmd/detail/ir/collective.hpp"

/// Parts of SVG files.
namespace gspmd::detail {

/// Returns the colour of a kind of collective, the same in all pictures.
[[gnu::cold]] inline const char* colour_of(int kind) {
  switch (static_cast<collective_kind>(kind)) {
    case collective_kind::all_reduce: return "#f4a6a6";
    case collective_kind::reduce_scatter: return "#f7cf9e";
    case collective_kind::all_gather: return "#f5ee9e";
    case collective_kind::all_to_all: return "#b7d7f5";
    default: return "#d9c2f0";
  }
}
inline constexpr const char* colour_of_computation = "#9fc99f";
/// Escapes text for XML. Drops control characters, which XML does not allow. Also drops line feeds, unless
/// `keeps_lines`.
[[gnu::cold]] inline std::string escaped_xml(std::string_view text, bool keeps_lines = false) {
  std::string t;
  for (const char c : text) {
    if (c == '<') t += "&lt;";
    else if (c == '>') t += "&gt;";
    else if (c == '&') t += "&amp;";
    else if (c == '"') t += "&quot;";
    else if (static_cast<unsigned char>(c) >= ' ' || (keeps_lines && c == '\n')) t += c;
  }
  return t;
}
[[gnu::cold]] inline std::string box(double x, double y, double width, double height, std::string_view colour,
                                     std::string_view tooltip = {}) {
  std::string t = "<rect x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + "\" width=\"" + std::to_string(width) +
                  "\" height=\"" + std::to_string(height) + "\" fill=\"" + std::string(colour) +
                  "\" stroke=\"#404040\" stroke-width=\"0.5\"";
  if (tooltip.empty()) return t + "/>\n";
  return t + "><title>" + escaped_xml(tooltip) + "</title></rect>\n";
}
/// `look`: `k` for text on a coloured box, which is black on a dark page too.
[[gnu::cold]] inline std::string words(double x, double y, std::string_view text, bool is_bold, std::string_view look = {}) {
  return "<text x=\"" + std::to_string(x) + "\" y=\"" + std::to_string(y) + '"' + (is_bold ? " font-weight=\"bold\"" : "") +
         (look.empty() ? std::string() : " class=\"" + std::string(look) + '"') + '>' + escaped_xml(text) + "</text>\n";
}
/// Returns an upper bound for the width of a text of 11 pixels.
inline double text_width(std::string_view text) { return 6.3 * static_cast<double>(text.size()); }
[[gnu::cold]] inline std::string svg_line(double x0, double y0, double x1, double y1, std::string_view look) {
  return "<line x1=\"" + std::to_string(x0) + "\" y1=\"" + std::to_string(y0) + "\" x2=\"" + std::to_string(x1) + "\" y2=\"" +
         std::to_string(y1) + "\" class=\"" + std::string(look) + "\"/>\n";
}
/// Returns the colours of computation and of the collectives in one row with their names.
[[gnu::cold]] inline std::string legend(double x, double y) {
  std::string t;
  for (int kind = -1; kind <= static_cast<int>(collective_kind::collective_permute); ++kind) {
    const std::string name = kind < 0 ? "computation" : name_of(static_cast<collective_kind>(kind));
    t += box(x, y, 12, 12, kind < 0 ? colour_of_computation : colour_of(kind)) + words(x + 17, y + 10, name, false);
    x += 40 + text_width(name);
  }
  return t;
}
[[gnu::cold]] inline std::string svg_file(int width, int height, const std::string& content) {
  const auto w = std::to_string(width), h = std::to_string(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + w + "\" height=\"" + h + "\" viewBox=\"0 0 " + w + ' ' + h +
         "\" font-family=\"sans-serif\" font-size=\"11\">\n"
         "<style>svg{background:#ffffff}.k{fill:#000000}.g{stroke:#bbbbbb}.f{stroke:#404040}"
         "@media(prefers-color-scheme:dark){svg{background:#181a1b}text{fill:#e0e0e0}.k{fill:#000000}.g{stroke:#555555}.f{stroke:"
         "#b0b0b0}}</style>\n" +
         content + "</svg>\n";
}

}  // namespace gspmd::detail
