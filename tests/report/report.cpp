// SPDX-License-Identifier: Apache-2.0
// labels: planner
// group: dynamic
// The cost of a plan on a network, as text.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include <gspmd/dynamic.hpp>
#include <gspmd/gspmd.hpp>
#include <gspmd/report/explain_sharding.hpp>
#include <gspmd/report/html.hpp>
#include <gspmd/report/report.hpp>
#include <gspmd/report/suggest_annotations.hpp>

namespace {
using namespace gspmd;

// A sum over x of 8 devices: 7 bytes take 7 s; over y of 4, at twice the speed, 6 take 3 s.
const network& links() {
  static const network net(1, {{"x", topology::switched, 1, 0}, {"y", topology::switched, 2, 0}});
  return net;
}
dynamic::program sums() {
  return dynamic::compile(
      [](auto a, auto b) {
        return std::tuple{fori_loop(
                              10, [](value, value h) { return h * sum(h); }, a),
                          sum(b), sum(b * b)};
      },
      dynamic::mesh({{"x", 8}, {"y", 4}}), dynamic::input<float>({8}, {"x"}), dynamic::input<float>({8}, {"y"}));
}
bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
}  // namespace

namespace {
/// Returns true if all tags of a page are closed in the right order, and no text contains a tag.
bool is_well_formed(const std::string& page) {
  std::vector<std::string> open;
  for (auto at = page.find('<', 1); at != std::string::npos; at = page.find('<', at + 1)) {
    const auto end = page.find('>', at);
    if (end == std::string::npos || page.find('<', at + 1) < end) return false;
    if (page[end - 1] == '/') continue;
    const auto name = page.substr(at + 1, page.find_first_of(" >", at) - at - 1);
    if (name[0] != '/') {
      open.push_back(name);
    } else {
      if (open.empty() || '/' + open.back() != name) return false;
      open.pop_back();
    }
  }
  return open.empty();
}
dynamic::program layers(int count, int other) {
  dynamic::builder b{dynamic::mesh({{"x", 2}})};
  value x = b.input(dynamic::input<float>({64, 32}, {"x", ""}));
  for (int k = 0; k < count; ++k) {
    const value w = b.input(dynamic::input<float>({32, 32}, {"x", ""}));
    const auto body = [&](value h, value v) { return k == other ? tanh(h) : relu(einsum<"bd,df->bf">(h, v)); };
    x = named<"layer">([&](value h, value v) { return named<"a<b">(body, h, v); }, x, w);
  }
  b.output(x);
  return b.compile();
}
std::size_t times_in(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (auto at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}
}  // namespace

TEST_CASE("report: the page has each scope once where neighbours are alike, and every figure of the totals") {
  const auto page = report_html(layers(5, -1), links());  // the first one has the gather of all five weights
  CHECK(is_well_formed(page));
  CHECK(times_in(page.substr(0, page.find("<h2>Inputs")), "<details>") == 4);
  CHECK(contains(page, "<span>layers 1-4</span><span>4 times, all equal</span>"));
  CHECK(times_in(page.substr(page.find("<h2>Inputs")), "<details>") == 2);  // those of layer 0, and those of layers 1-4
  CHECK(contains(page, "4 times, all equal"));
  CHECK(contains(page, "<span>a&lt;b</span>"));
  CHECK(contains(page, "all_gather over x"));
  CHECK(contains(page, "f32 [32,32], sharding [x, _], on a device [16,32]"));
  CHECK(contains(page, format_flops(layers(5, -1).flops_per_device())));
  CHECK(contains(report_html(layers(5, -1), links(), "", "", "a < b", number_form::exact), "<h1>a &lt; b</h1>"));
  CHECK(contains(report_html(layers(5, -1), links(), "", "", "", number_form::exact),
                 std::to_string(layers(5, -1).flops_per_device()) + " FLOP"));
  const auto parted = report_html(layers(5, 2), links());  // one that gathers, one, another one, and two
  CHECK(is_well_formed(parted));
  const auto parted_program = parted.substr(0, parted.find("<h2>Inputs"));
  CHECK(times_in(parted_program, "2 times, all equal") == 1);
  CHECK(times_in(parted_program, "<details>") == 8);
  CHECK(times_in(report_html(layers(5, 2), links(), "layer[2]"), "einsum") == 0);
  CHECK(contains(report_html(sums(), links(), "", "a < b\nc"), "a &lt; b\nc"));
  CHECK(is_well_formed(report_html(sums(), links())));
  CHECK_THROWS_AS(static_cast<void>(report_html(sums(), links(), "nowhere")), error);
}

TEST_CASE("report: the most expensive collectives first, with line and trips, and how many more there are") {
  const auto p = sums();
  const auto all = most_expensive_collectives(p, links());
  CHECK(all.find("70 s     10  all_reduce  x") != std::string::npos);
  CHECK(all.find("70 s") < all.find("all_reduce  y"));
  CHECK(contains(all, "report.cpp:"));
  CHECK(!contains(all, "more kind"));
  CHECK(contains(most_expensive_collectives(p, links(), 1), "and 1 more kind"));
  CHECK(!contains(most_expensive_collectives(p, links(), 1), "all_reduce  y"));
}

TEST_CASE("report: a summary and a comparison have the totals of the estimate") {
  const auto p = sums();
  const auto t = summary(p, links());
  const auto e = estimate(p, links());
  CHECK(contains(t, format_time(e.communication)));
  CHECK(contains(t, format_flops(p.flops_per_device())));
  const auto exact = summary(p, links(), "", number_form::exact);
  CHECK(contains(exact, format_time(e.communication, number_form::exact)));
  CHECK(contains(exact, std::to_string(p.flops_per_device()) + " FLOP"));
  CHECK(contains(t, "all_reduce over x"));
  CHECK(contains(t, "bytes held"));
  const auto same = compare(p, p, links());
  CHECK(contains(same, "="));
  const auto other =
      dynamic::compile([](auto b) { return sum(b); }, dynamic::mesh({{"x", 8}, {"y", 4}}), dynamic::input<float>({8}, {"y"}));
  const auto different = compare(p, other, links());
  CHECK(contains(different, "10: 70 bytes, 70 s"));
}

TEST_CASE(
    "report: the timeline has a track for computing and one for each axis, and no event begins before the one before it ends") {
  const auto t = timeline(sums(), links());
  CHECK(contains(t, R"("args": {"name": "compute"})"));
  CHECK(contains(t, R"("args": {"name": "axis y"})"));
  CHECK(contains(t, "all_reduce for reduce"));
  double end = 0;
  int events = 0;
  for (auto at = t.find("\"ts\": "); at != std::string::npos; at = t.find("\"ts\": ", at + 1)) {
    const double begin = std::stod(t.substr(at + 6));
    CHECK(begin >= end - 1e-6);
    end = begin + std::stod(t.substr(t.find("\"dur\": ", at) + 7));
    ++events;
  }
  CHECK(events >= 4);
  CHECK(end == doctest::Approx(1e6 * estimate(sums(), links()).total()));
  CHECK(t.substr(t.size() - 3) == "]}\n");
}

TEST_CASE("report: a network that says nothing of an axis is refused") {
  const network half(1, {{"x", topology::switched, 1, 0}});
  CHECK_THROWS_AS(summary(sums(), half), error);
}

namespace {
constexpr auto product = [](auto x, auto w) {
  return named<"product">([](auto a, auto b) { return einsum<"bd,df->bf">(a, b); }, x, w);
};
using step =
    compile<product, mesh<axis<"x", 8>>, input<float, shape<8, 8>, split<"x", _>>, input<float, shape<8, 8>, split<"x", _>>>;
}  // namespace
TEST_CASE("report: of steps that were compiled, too") {
  const network net(1, {{"x", topology::switched, 1, 0}});
  CHECK(contains(most_expensive_collectives<step>(net), "all_gather"));
  CHECK(contains(compare<step, step>(net), "all_gather over x"));
  CHECK(contains(timeline<step>(net), "axis x"));
  CHECK(contains(summary<step>(net), "einsum"));
  CHECK(contains(explain<step>({.scope = "product"}), "\none device sends for these operators"));
  CHECK(contains(outline<step>(net), "product  einsum"));
}

TEST_CASE("report: a plan as a graph and as JSON has its steps, inputs and totals") {
  const auto graph = plan_dot<step>();
  CHECK(graph.starts_with("digraph plan {\n"));
  CHECK(contains(graph, "label=\"einsum\""));
  CHECK(contains(graph, " over x, " + std::to_string(step::traffic.bytes) + " bytes\", fillcolor=\"#"));
  CHECK(contains(graph, " -> out0;\n"));
  const auto text = plan_json<step>();
  CHECK(contains(text, R"("shape": [8, 8], "local_shape": [1, 8], "sharding": "[x, _]")"));
  CHECK(contains(text, R"("axes": "x", "bytes": )" + std::to_string(step::traffic.bytes)));
  CHECK(contains(text, R"("name": "input 1")"));
  CHECK(contains(text, "\"bytes_sent_per_device\": " + std::to_string(step::traffic.bytes)));
  CHECK(std::count(text.begin(), text.end(), '{') == std::count(text.begin(), text.end(), '}'));
  CHECK(plan_json(sums()).ends_with("}\n"));
  CHECK(contains(plan_dot(sums()), "all_reduce over y"));
}

namespace {
std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}
/// Returns the numbers of the list that follows `key` in a line of JSON.
std::vector<int> numbers_after(const std::string& line, const std::string& key) {
  std::istringstream list(line.substr(line.find('[', line.find(key)) + 1));
  std::vector<int> numbers;
  for (int n = 0; list >> n; list.ignore()) numbers.push_back(n);
  return numbers;
}
/// Checks that the edges of the graph are those of the JSON: one for each value that a step reads, from the step that
/// makes this value or from the input. Returns the nodes that are neither inputs, steps nor outputs.
std::vector<std::string> check_edges(const std::string& dot, const std::string& json) {
  std::vector<std::string> nodes, others;
  std::map<std::string, std::vector<std::string>> into;
  for (const auto& line : split_lines(dot)) {
    std::istringstream words(line);
    std::string a, b, c;
    words >> a >> b >> c;
    CAPTURE(line);
    if (b == "->") {
      if (c.back() == ';') c.pop_back();
      CHECK(std::count(nodes.begin(), nodes.end(), a) == 1);
      CHECK(std::count(nodes.begin(), nodes.end(), c) == 1);
      into[c].push_back(a);
    } else if (a != "node" && a != "digraph" && a != "}") {
      nodes.push_back(a);
    }
  }
  std::map<int, std::string> made;  // the node that has a value
  const auto check = [&](const std::string& node, const std::vector<int>& reads) {
    const auto& from = into[node];
    CAPTURE(node);
    REQUIRE(from.size() == reads.size());
    for (std::size_t k = 0; k < reads.size(); ++k)
      if (const auto it = made.find(reads[k]); it != made.end()) CHECK(from[k] == it->second);
    into.erase(node);
  };
  for (auto at = json.find("\"value\": "); at != std::string::npos; at = json.find("\"value\": ", at + 1)) {
    const int v = std::stoi(json.substr(at + 9));
    made[v] = 'v' + std::to_string(v);
  }
  std::size_t steps = 0, known = made.size();
  for (const auto& line : split_lines(json)) {
    if (!line.starts_with("  {\"what\"")) continue;
    const auto node = 's' + std::to_string(steps++);
    const bool is_drawn = std::count(nodes.begin(), nodes.end(), node) == 1;
    CHECK((is_drawn || !contains(line, "\"collective\"")));  // only the steps that control loops and branches are not drawn
    if (!is_drawn) continue;
    ++known;
    check(node, numbers_after(line, "\"reads\""));
    for (const int v : numbers_after(line, "\"makes\"")) made[v] = node;
  }
  const auto outputs = numbers_after(json, "\"outputs\"");
  for (std::size_t k = 0; k < outputs.size(); ++k) check("out" + std::to_string(k), {outputs[k]});
  CHECK(into.empty());
  for (const auto& n : nodes)
    if (n[0] == 'v' && json.find("\"value\": " + n.substr(1) + '}') == std::string::npos) others.push_back(n);
  CHECK(nodes.size() == known + outputs.size() + others.size());
  return others;
}
}  // namespace

TEST_CASE("report: the edges of a graph are those of the plan's JSON, also in loops, branches and blocks of rows") {
  CHECK(check_edges(plan_dot<step>(), plan_json<step>()).empty());
  CHECK(check_edges(plan_dot(sums()), plan_json(sums())).empty());
  CHECK(check_edges(plan_dot(layers(3, 1)), plan_json(layers(3, 1))).empty());
  const auto p = dynamic::compile(
      [](auto a, auto b) {
        const auto last = while_loop([](const auto& now) { return std::get<0>(now) < 5.0; },
                                     [](const auto& now) {
                                       return std::tuple{std::get<0>(now) + sum(std::get<1>(now)), tanh(std::get<1>(now))};
                                     },
                                     std::tuple{sum(a), b});
        const auto numbered = fori_loop(
            3, [](value i, value h) { return h + cast<float>(i); }, b);
        const auto rows = reshape(broadcast_in_dim(b, {8, 4096, 64}, {0}), {8 * 4096, 64});
        return std::tuple{std::get<0>(last), std::get<1>(last), numbered, softmax(exp(rows), 1)};
      },
      dynamic::mesh({{"x", 8}, {"y", 4}}), dynamic::input<float>({8}, {"x"}), dynamic::input<float>({8}, {"y"}));
  const auto dot = plan_dot(p);
  const auto others = check_edges(dot, plan_json(p));
  CHECK(others.size() == 1);
  CHECK(contains(dot,
                 others.at(0) + " [shape=ellipse, label=\"loop: s64 [] []\"];\n"));  // the counter, which the loop's body reads
}

TEST_CASE("report: an outline writes the layers of a network once, with the communication between them") {
  // 12 layers: a product that is summed over x, and operators that read the product.
  const auto layers = dynamic::compile(
      [](auto a, auto w) {
        auto h = a;
        for (int k = 0; k < 12; ++k) h = relu(einsum<"bd,df->bf">(exp(h), w));
        return h;
      },
      dynamic::mesh({{"x", 8}, {"y", 4}}), dynamic::input<float>({8, 64}, {"", "x"}), dynamic::input<float>({64, 64}, {"x", ""}));
  const auto t = outline(layers, links());
  CHECK(contains(t, " times\n"));
  CHECK(std::count(t.begin(), t.end(), '\n') < 16);
  CHECK(contains(t, format_time(estimate(layers, links()).total()) + "  in all"));
  for (const auto& svg : {outline_svg(layers, links()), timeline_svg(layers, links()), timeline_svg(sums(), links())}) {
    CHECK(svg.starts_with("<svg "));
    CHECK(svg.ends_with("</svg>\n"));
    CHECK(contains(svg, "all_reduce"));
  }
}

TEST_CASE("report: two plans side by side name the operators that differ") {
  const auto product_of = [](const char* rows) {
    return dynamic::compile(product, dynamic::mesh({{"x", 8}}), dynamic::input<float>({8, 8}, {rows, ""}),
                            dynamic::input<float>({8, 8}, {"x", ""}));
  };
  const auto t = compare(product_of("x"), product_of(""));
  CHECK(contains(t, "parameter  input 0 "));
  CHECK(contains(t, "[x, _], sends 224 bytes  [_, _], sends 224 bytes"));
  CHECK(contains(t, " equal in both\n"));
  CHECK(contains(compare<step, step>(), "\n3 operators are equal in both\n"));
  CHECK(!contains(compare<step, step>(), "operator   line"));
}

TEST_CASE("report: why an operator was split so, with the other ways and their times") {
  const auto t = explain_sharding<step>(2);  // the weight, of a row on each device, is gathered; or the sum is
  CHECK(t.starts_with("ways to run einsum #2"));
  CHECK(contains(t, ">  0.007 us  224  [x, _], [_, _] -> [x, _]\n"));
  CHECK(contains(t, "[_, x], [x, _] -> [_, _] partial(x: add)"));
  CHECK(t.find(">") < t.find("partial"));  // the cheapest first
  CHECK(explain_sharding<step>(0) == "");
  CHECK_THROWS_AS(explain_sharding<step>(3), error);

  dynamic::builder b(dynamic::mesh({{"x", 4}}));
  const value x = b.input(dynamic::input<float>({512, 64}, {"x", ""})), w = b.input(dynamic::input<float>({64, 512}, {"", "x"}));
  const value h = einsum<"bd,df->bf">(x, w);
  b.label(0);
  const value r = relu(h);
  b.label(1);
  b.output(einsum<"bf,df->bd">(r, w));
  const dynamic::inspection plan(b);
  CHECK(contains(dynamic::explain_sharding(plan, 1, "r"), "ways to run relu r"));
  CHECK(contains(dynamic::explain_sharding(plan, 1, "r"), "the whole plan takes "));
}

TEST_CASE("report: what would avoid a collective is found by planning again") {
  const network net = network(1e12, {{"x", topology::switched, 1e9, 0}}).with_memory(1e15);
  // The weight is gathered: not if it is given whole.
  const auto gathered = suggest_annotations<step>(net);
  CHECK(contains(gathered, "all_gather"));
  CHECK_MESSAGE(
      contains(gathered,
               "with split<_, _> for input 1 the step takes 0.020 us instead of 0.244 us and sends 0 bytes instead of 224\n"),
      gathered);
  CHECK(contains(gathered, "     ways to run einsum at report.cpp:"));
  CHECK(contains(gathered, "     > 0.007 us, 224 bytes: [x, _], [_, _] -> [x, _]\n"));

  // A result with an annotated sharding.
  dynamic::builder b(dynamic::mesh({{"x", 8}}));
  const value x = b.input(dynamic::input<float>({512, 64}, {"x", ""}));
  b.output(b.reshard(relu(x), {"", "x"}));
  const auto moved = dynamic::suggest_annotations(dynamic::inspection(b), net);
  CHECK_MESSAGE(contains(moved, " reshard at report.cpp:"), moved);
  CHECK_MESSAGE(contains(moved, "with split<_, \"x\"> for input 0 the step takes "), moved);
  CHECK_MESSAGE(contains(moved, "sends 0 bytes instead of 14336"), moved);

  // Annotations that the program lacks are tried too. The report prints the line to write.
  const auto with_weights = [](const dynamic::mesh& m, const std::vector<std::string>& columns) {
    dynamic::builder d(m);
    const value rows = d.input(dynamic::input<float>({512, 64}, {"x", ""}));
    const value up = d.input(dynamic::input<float>({64, 512}, columns)), down = d.input(dynamic::input<float>({512, 64}));
    d.output(d.reshard(einsum<"bf,fd->bd">(relu(einsum<"bd,df->bf">(rows, up)), down), {"", "x"}));
    return dynamic::inspection(d);
  };
  const auto one_axis = dynamic::suggest_annotations(with_weights(dynamic::mesh({{"x", 8}}), {"", ""}), net);
  CHECK_MESSAGE(contains(one_axis, "with replicate(einsum at report.cpp:"), one_axis);
  const network two(1e12, {{"x", topology::switched, 1e9, 0}, {"y", topology::switched, 1e9, 0}});
  const auto two_axes = dynamic::suggest_annotations(with_weights(dynamic::mesh({{"x", 4}, {"y", 2}}), {"", "y"}), two);
  CHECK_MESSAGE(contains(two_axes, "with reshard<split<\"x,y\", _>>(einsum at report.cpp:"), two_axes);

  // A sum of an input without an annotation: only its operand determines its sharding.
  dynamic::builder c(dynamic::mesh({{"x", 8}}));
  c.output(sum(c.input(dynamic::input<float>({512}, {"x"}))));
  const auto summed = dynamic::suggest_annotations(dynamic::inspection(c), net, 1);
  CHECK(contains(summed, " input 0 the step takes"));
  CHECK(dynamic::suggest_annotations(dynamic::inspection(c), net, 0) != summed);
}

TEST_CASE("explain: of the operators of some lines or of a loop, and of those only what sends") {
  const int before = __LINE__;
  const auto p = dynamic::compile(
      [](auto a, auto b) {
        const value looped = fori_loop(
            10, [](value, value h) { return h * sum(h); }, a);
        return std::tuple{looped, exp(b) * sum(b * b)};
      },
      dynamic::mesh({{"x", 8}, {"y", 4}}), dynamic::input<float>({8}, {"x"}), dynamic::input<float>({8}, {"y"}));
  const auto loop = explain(p, {.file = "report.cpp", .first_line = before + 3, .last_line = before + 4});
  CHECK(contains(loop, "loop (10 times)"));
  CHECK(contains(loop, "one device sends for these operators"));
  CHECK(contains(loop, "over x  "));
  CHECK(!contains(loop, "exp"));
  CHECK(!contains(loop, "over y"));
  const auto after = explain(p, {.first_line = before + 5, .last_line = before + 5, .collectives_only = true});
  CHECK(contains(after, "all_reduce over y"));
  CHECK(!contains(after, "exp"));
  CHECK(!contains(after, "over x"));
  CHECK(!contains(explain(p, {.file = "other.cpp"}), "reduce"));
  CHECK(explain(p, {}) == explain(p));
  CHECK(contains(explain(p, {.colours = true}), "m   > all_reduce over x"));
  CHECK(!contains(explain(p), "\033"));
}

namespace {
/// A network of layers, its gradient and update, with the names of its parts or without.
dynamic::builder training(int layers, bool has_names) {
  const auto call = [has_names](const char* name, auto f, auto... x) { return has_names ? named(name, f, x...) : f(x...); };
  dynamic::builder b(dynamic::mesh({{"data", 2}, {"model", 2}}));
  value h = b.input(dynamic::input<float>({64, 64}, {"data", ""}));
  std::vector<value> weights;
  for (int k = 0; k < layers; ++k) {
    weights.push_back(b.input(dynamic::input<float>({64, 64}, {"", "model"})));
    weights.push_back(b.input(dynamic::input<float>({64, 64}, {"model", ""})));
    b.name(weights.back(), "down" + std::to_string(k));
    h = call(
        "layer",
        [&](value x, value up, value down) {
          const value y = call(
              "mlp", [](value a, value u, value d) { return einsum("bf,fd->bd", relu(einsum("bd,df->bf", a, u)), d); }, x, up,
              down);
          return call(
              "norm", [](value a) { return a * rsqrt(mean(a * a) + 1e-5); }, x + y);
        },
        h, weights[weights.size() - 2], weights.back());
  }
  const auto gradients = grad(sum(h * h), weights);
  for (std::size_t k = 0; k < weights.size(); ++k)
    b.output(call(
        "update", [](value w, value g) { return w - 0.1 * g; }, weights[k], gradients[k]));
  return b;
}
dynamic::program trained(int layers, bool has_names) { return training(layers, has_names).compile(); }
network links_of_two() {
  return network(1e12, {{"data", topology::switched, 1e9, 0}, {"model", topology::switched, 1e9, 0}}).with_memory(1e15);
}
std::int64_t lines_of(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }
}  // namespace

TEST_CASE("named: operators and their gradients bear the names, one part is shown alone, and the plan is the same") {
  const auto p = trained(3, true);
  CHECK(p == trained(3, false));
  const auto all = explain(p);
  CHECK(contains(all, "scope"));
  CHECK(!contains(explain(trained(3, false)), "scope"));
  CHECK(contains(all, " layer[1]/mlp "));
  CHECK(contains(all, " update[5] "));
  // One layer has two products and four gradients of products, in this order or another.
  const auto products = [](const std::string& text) {
    int n = 0;
    for (auto at = text.find("einsum"); at != std::string::npos; at = text.find("einsum", at + 1)) ++n;
    return n;
  };
  const auto second = explain(p, {.scope = "layer[1]"});
  CHECK(products(second) >= 6);
  CHECK(products(explain(p, {.scope = "layer[1]/mlp"})) == products(second));
  CHECK(products(explain(p, {.scope = "mlp"})) == products(all));
  CHECK(!contains(second, "layer[0]"));
  CHECK(!contains(second, "update"));
  CHECK(contains(explain(p, {.scope = "layer[2]/mlp", .collectives_only = true}), "all_reduce over model"));
  CHECK(products(explain(p, {.scope = "norm"})) == 0);
  std::string message;
  try {
    static_cast<void>(explain(p, {.scope = "layer[3]"}));
  } catch (const error& e) {
    message = e.text();
  }
  CHECK(message == "no scope of the program is called `layer[3]`; there are: layer, layer/mlp, layer/norm, update");
  CHECK_THROWS_AS(static_cast<void>(summary(trained(3, false), default_network, "mlp")), error);

  CHECK(contains(summary(p), "layer/mlp"));
  CHECK(!contains(summary(p, default_network, "update"), "einsum"));
  CHECK(contains(outline(p), "  layer/mlp  "));
  CHECK(contains(outline_svg(p), ">layer/mlp: "));
  CHECK(contains(most_expensive_collectives(p), "layer/mlp\n"));
  const auto trace = timeline(p);
  CHECK(contains(trace, R"("args": {"name": "scope"})"));
  CHECK(contains(trace, R"({"name": "layer[2]/mlp", "ph": "X", "pid": 0, "tid": 3, )"));
  CHECK(contains(trace, R"("scope": "layer[0]/mlp", "bytes")"));
  CHECK(contains(timeline_svg(p), ", in layer["));
  CHECK_THROWS_AS(named(
                      "a/b", [](value x) { return x; }, value()),
                  error);
}

TEST_CASE("named: scopes that the user counted are calls of one in reports, and each is found by its own name") {
  dynamic::builder b(dynamic::mesh({{"x", 2}}));
  value h = b.input(dynamic::input<float>({64}, {"x"}));
  const auto in_scope = [&](const std::string& path) {
    const int before = b.open_scope();
    b.enter_scope(path);
    h = h * sum(h);
    b.leave_scope(before);
  };
  for (const char* path : {"layer[7]/conv2", "layer[5]/conv2", "block1/0", "block1/1", "block2/0", "v2", "layer[5]/v2"})
    in_scope(path);
  b.output(h);
  const auto p = b.compile();
  const auto t = summary(p);
  for (const char* name : {"\nlayer/conv2 ", "\nlayer ", "\nblock*/* ", "\nblock* ", "\nv2 ", "\nlayer/v2 "})
    CHECK_MESSAGE(contains(t, name), name, t);
  const auto all = most_expensive_collectives(p);  // one line of this file
  CHECK_MESSAGE(times_in(all, "all_reduce") == 4, all);
  CHECK_MESSAGE(contains(all, "block*/*"), all);
  const auto products = [&](const std::string& scope) { return times_in(explain(p, {.scope = scope}), " multiply "); };
  CHECK(products("layer[7]") == 1);
  CHECK(products("layer[5]") == 2);
  CHECK(products("layer") == 3);
  CHECK(products("block*") == 3);
  CHECK(products("block*/0") == 2);
  CHECK(products("block1/*") == 2);
  CHECK_THROWS_AS(static_cast<void>(products("v*/0")), error);
  for (const char* wrong : {"layer[]", "layer[", "layer]", "[3]", "layer[3]x", "layer[a]", "a[1][2]", "a//b", ""})
    CHECK_THROWS_AS(b.enter_scope(wrong), error);
}

TEST_CASE("report: 1,500 operators fit a screen, and inputs are called by their names") {
  const dynamic::inspection plan(training(40, true));
  const auto& p = plan.program();
  CHECK(p.operators().size() > 1500);
  CHECK(lines_of(summary(p)) <= 40);
  CHECK(lines_of(summary(p, default_network, "mlp")) <= 40);
  CHECK(lines_of(outline(p)) <= 60);
  CHECK(contains(explain(p), "input 2 (down0)"));
  // The most expensive collectives, with the annotations that are tried and the ways that were compared.
  const auto dear = dynamic::suggest_annotations(plan, links_of_two());
  CHECK(lines_of(dear) <= 60);
  CHECK_MESSAGE(contains(dear, " (down"), dear);
  CHECK(contains(dear, "ways to run add at report.cpp:"));
  CHECK(contains(dear, "     > "));
}

TEST_CASE("report: of a conditional a summary counts the body that computes more, as the program does") {
  const auto p = dynamic::compile(
      [](value flag, value x) {
        return cond(
            flag, [](value a) { return einsum("ab,bc->ac", a, a); }, [](value a) { return a + einsum("ab,cb->ac", a, a); }, x);
      },
      dynamic::mesh({{"x", 1}}), dynamic::input<bool>({}), dynamic::input<float>({8, 8}));
  CHECK(p.flops_per_device() == 2 * 8 * 8 * 8 + 8 * 8);
  CHECK_MESSAGE(contains(summary(p), format_flops(p.flops_per_device())), summary(p));
}

TEST_CASE("explain: a gather over an axis that the operator could keep is not forced, whatever it cannot keep") {
  const auto text = [](const std::vector<std::string>& from, const std::vector<std::string>& to) {
    dynamic::builder b(dynamic::mesh({{"x", 4}, {"z", 2}}));
    b.allow_replication();
    b.output(b.reshard(reshape(b.input(dynamic::input<float>({15, 4, 1}, from)), {15, 4}), to));
    return explain(b.compile());
  };
  const auto moved =
      text({"z", "", "x"}, {"", ""});  // x cannot stay on an extent of 1 and moves; z is gathered where that costs least
  CHECK_MESSAGE(contains(moved, "all_to_all over x,z of #0: [z, _, x] -> [_, x, _]"), moved);
  CHECK_MESSAGE(times_in(moved, "forced") == 0, moved);
}

TEST_CASE("explain: of the steps to what an operator can work on only those that lose a split are forced") {
  dynamic::builder b(dynamic::mesh({{"x", 2}, {"y", 2}, {"z", 2}}));
  b.allow_replication();
  const value c = b.input(dynamic::input<float>({8, 6}, {"x", "z"})), w = b.input(dynamic::input<float>({6, 6}, {"z", "y"}));
  b.output(reshape(einsum("bd,df->bf", c, w), {16, 3}));
  const auto t = explain(b.compile());
  CHECK_MESSAGE(contains(t, "reduce_scatter over z"), t);
  CHECK_MESSAGE(times_in(t, "forced: reshape cannot work on this split") == 1, t);
  CHECK_MESSAGE(t.find("reduce_scatter over z") < t.find("all_gather over y"), t);
  CHECK_MESSAGE(t.find("all_gather over y") < t.find("forced: "), t);
}

TEST_CASE("explain: each number that a line refers to has a row or is listed after the rows") {
  const auto has_rows = [](const std::string& t) {
    int found = 0;
    for (auto at = t.find('#', t.find('\n', 30)); at != std::string::npos; at = t.find('#', at + 1)) {
      const auto end = t.find_first_not_of("0123456789", at + 1);
      const auto number = t.substr(at + 1, end - at - 1);
      if (number.empty() || t[at - 1] == '`') continue;  // the head of the table, or the legend
      ++found;
      CAPTURE(number);
      CAPTURE(t);
      const bool is_row = contains(t, '\n' + number + "  ") || contains(t, "\n " + number + "  ") ||
                          contains(t, "\n  " + number + "  ") || contains(t, "\n#" + number + "  ");
      CHECK(is_row);
    }
    return found;
  };
  const auto p = trained(2, true);
  CHECK(has_rows(explain(p)) > 0);
  CHECK(has_rows(explain(p, {.scope = "update", .collectives_only = true})) > 0);
  CHECK(has_rows(explain(p, {.scope = "norm"})) >= 0);
  CHECK(contains(explain(p), " gradient of einsum "));
  CHECK(!contains(explain(layers(2, -1)), "gradient of"));
}

TEST_CASE("report: a collective that sends much more than its operands have is named, with the operands") {
  const network slow(1e6, {{"x", topology::switched, 1e15, 0}});  // computing is slow, so the product is split
  const auto product_of = [&](std::int64_t contracted) {
    dynamic::builder b(dynamic::mesh({{"x", 8}}).with({.network = slow}));
    const value a = b.input(dynamic::input<float>({256, contracted}, {"", "x"})),
                w = b.input(dynamic::input<float>({contracted, 256}, {"x", ""}));
    b.output(b.reshard(einsum("mk,kn->mn", a, w), {"", ""}));
    return b.compile();
  };
  const auto small = product_of(8);
  const auto lines = excess_communication(small);
  REQUIRE_MESSAGE(lines.size() == 1, explain(small));
  CHECK_MESSAGE(contains(lines[0], " need at most 16.4 kB, and each device computes the whole result"), lines[0]);
  CHECK(contains(explain(small), " need at most 16384 bytes, and"));
  CHECK(excess_communication(product_of(512)).empty());
}
