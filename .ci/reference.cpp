// SPDX-License-Identifier: Apache-2.0
// The compile time of this file measures the speed of the machine (.ci/run). It contains none of our code, so it never changes.
#include <boost/mp11.hpp>

#include <algorithm>
#include <cstddef>
#include <map>
#include <regex>
#include <string>
#include <vector>

template <class Least>
std::size_t words(const std::string& text) {
  const std::regex word("[a-z]+");
  std::map<std::string, std::size_t> counts;
  for (std::sregex_iterator at(text.begin(), text.end(), word); at != std::sregex_iterator(); ++at) ++counts[at->str()];
  std::vector<std::string> frequent;
  for (const auto& [text_of, count] : counts)
    if (count > Least::value) frequent.push_back(text_of);
  std::sort(frequent.begin(), frequent.end());
  return frequent.size();
}

int main() {
  std::size_t sum = 0;
  boost::mp11::mp_for_each<boost::mp11::mp_iota_c<20>>([&](auto least) { sum += words<decltype(least)>("a b a"); });
  return static_cast<int>(sum);
}
