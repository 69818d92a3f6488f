// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

/// Tables in Markdown: our numbers, the published numbers, and the difference.
namespace papers {

/// The claim of a band.
///
///   agreement      One limit holds for all numbers of a kind: counts are exact, FLOPS utilisation is within 3 %, exponents within 0.02.
///   regression     The limits are close to our own number. They show that it has not changed, and not that it agrees.
///   construction   Both numbers are equal for every plan, for example a ratio to itself.
enum class claim { agreement, regression, construction };

/// The least and the largest `ours / published` for a quantity of a table; for an exponent, `ours - published`. `of` is one
/// configuration; if it is empty, the band is for all configurations without a band of their own.
struct band {
  claim kind;
  const char *table, *quantity, *of;
  double low, high;
};

class report {
 public:
  /// `bands` must outlive the report.
  explicit report(const std::vector<band>& bands) : bands_(bands), held_(bands.size(), {INFINITY, -INFINITY}) {}

  /// Begins a table with the name that bands use. `about` describes the comparison.
  void table(std::string name, const std::string& about) {
    table_ = std::move(name);
    has_head_ = false;
    std::printf("\n## %s\n\n%s\n", table_.c_str(), about.c_str());
  }
  /// A row of the table.
  void row(const std::string& configuration, const std::string& quantity, double ours, double published) {
    const double ratio = published == 0 ? (ours == 0 ? 1 : INFINITY) : ours / published;
    char text[32];
    std::snprintf(text, sizeof text, "%+.1f %%", 100 * (ratio - 1));
    add(configuration, quantity, ours, published, ratio, text);
  }
  /// The same for an exponent, which is compared by difference.
  void exponent(const std::string& configuration, const std::string& quantity, double ours, double published) {
    ours = std::round(ours * 1e4) / 1e4 + 0.0;
    char text[32];
    std::snprintf(text, sizeof text, "%+.2f", ours - published);
    add(configuration, quantity, ours, published, ours - published, text);
  }
  /// A row of words that must be equal.
  void words(const std::string& configuration, const std::string& quantity, const std::string& ours,
             const std::string& published) {
    begin_rows();
    wrong_ += ours != published;
    if (ours != published)
      std::fprintf(stderr, "papers: %s, %s, %s: `%s` for `%s`\n", table_.c_str(), configuration.c_str(), quantity.c_str(),
                   ours.c_str(), published.c_str());
    std::printf("| %s | %s | `%s` | `%s` | %s |\n", configuration.c_str(), quantity.c_str(), ours.c_str(), published.c_str(),
                ours == published ? "none" : "ANOTHER");
  }
  /// A number of parameters that must be equal to the last printed digit. A billion is 2^30.
  void parameters(const std::string& configuration, double ours, const std::string& published) {
    const bool is_trillion = published.back() == 'T';
    const auto point = published.find('.');
    const int decimals = point == std::string::npos ? 0 : static_cast<int>(published.size() - point) - 2;
    char text[32];
    std::snprintf(text, sizeof text, "%.*f%c", decimals, std::ldexp(ours, is_trillion ? -40 : -30), is_trillion ? 'T' : 'B');
    words(configuration, "parameters", text, published);
  }
  /// A sentence below the table.
  void note(const std::string& sentence) {
    has_head_ = false;
    std::printf("\n%s\n", sentence.c_str());
  }

  /// Prints the bands with the least and the largest value of each. Returns true if all differences are in their bands and all
  /// bands are used.
  bool finish() {
    print_bands(claim::agreement, "Agreement",
                "One limit for all numbers of a kind: counts are exact, FLOPS utilisation is within 3 %, exponents within 0.02.");
    print_bands(claim::regression, "Regression checks",
                "Limits around our own numbers. They show a change of ours, and claim no agreement.");
    print_bands(claim::construction, "Equal by construction", "These rows compare a number with itself or with its annotation.");
    return wrong_ == 0;
  }

 private:
  void print_bands(claim kind, const char* title, const char* about) {
    std::printf(
        "\n## %s\n\n%s `ours / published`, or `ours - published` for an exponent.\n\n| table | quantity | least | most | limits "
        "|\n|---|---|---|---|---|\n",
        title, about);
    for (std::size_t k = 0; k < bands_.size(); ++k) {
      const auto& b = bands_[k];
      if (b.kind != kind) continue;
      const bool is_used = held_[k].first <= held_[k].second;
      wrong_ += !is_used;
      if (!is_used) std::fprintf(stderr, "papers: the band of %s, %s is not used\n", b.table, b.quantity);
      std::printf("| %s | %s%s%s | %.3f | %.3f | %.3f to %.3f |\n", b.table, b.quantity, *b.of != 0 ? ", " : "", b.of,
                  held_[k].first, held_[k].second, b.low, b.high);
    }
  }
  void begin_rows() {
    if (!has_head_) std::puts("\n| configuration | quantity | ours | published | difference |\n|---|---|---|---|---|");
    has_head_ = true;
  }
  void add(const std::string& configuration, const std::string& quantity, double ours, double published, double apart,
           const char* difference) {
    begin_rows();
    const auto at = band_of(configuration, quantity);
    bool is_held = at < bands_.size();
    if (is_held) {
      held_[at] = {std::min(held_[at].first, apart), std::max(held_[at].second, apart)};
      is_held = apart >= bands_[at].low && apart <= bands_[at].high;
    }
    if (!is_held)
      std::fprintf(stderr, "papers: %s, %s, %s: %g for %g, %.4f is in no band\n", table_.c_str(), configuration.c_str(),
                   quantity.c_str(), ours, published, apart);
    wrong_ += !is_held;
    std::printf("| %s | %s | %s | %s | %s%s |\n", configuration.c_str(), quantity.c_str(), number(ours).c_str(),
                number(published).c_str(), is_held && bands_[at].kind == claim::construction ? "by construction" : difference,
                is_held ? "" : " OUT OF BAND");
  }
  [[nodiscard]] std::size_t band_of(const std::string& configuration, const std::string& quantity) const {
    std::size_t found = bands_.size();
    for (std::size_t k = 0; k < bands_.size(); ++k) {
      const auto& b = bands_[k];
      if (table_ != b.table || quantity != b.quantity) continue;
      if (configuration == b.of) return k;
      if (*b.of == 0) found = k;
    }
    return found;
  }
  /// Four digits; integers without decimals.
  static std::string number(double x) {
    char text[32];
    if (x == std::floor(x) && std::abs(x) < 1e15) std::snprintf(text, sizeof text, "%.0f", x);
    else std::snprintf(text, sizeof text, std::abs(x) >= 1000 ? "%.0f" : "%.4g", x);
    return text;
  }

  const std::vector<band>& bands_;
  std::vector<std::pair<double, double>> held_;  // least and most, by band
  std::string table_;
  bool has_head_ = false;
  int wrong_ = 0;
};

}  // namespace papers
