// SPDX-License-Identifier: Apache-2.0
// A mixture of experts as in GShard, trained to predict the next character of a text. The layer is in model.hpp.
// args: --steps 200 --expect 2.5
// precompiled: yes

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>

#include <gspmd/comm/threads.hpp>

#include "../common/check.hpp"
#include "../common/command_line.hpp"
#include "../common/progress.hpp"
#include "model.hpp"
#include "text.hpp"

namespace moe {
namespace {

struct options {
  std::int64_t devices = 4;
  int steps = 400;
  double expected = 10;
  dispatch how = dispatch::indices;
};

options parse(int argc, char** argv) {
  options o;
  std::string how = "indices";
  examples::command_line line("moe",
                              "Trains a mixture of experts to predict the next character of a text, and checks its routing.");
  line.option("--devices", o.devices, 1, 64, "devices that share the groups of tokens and the experts, each a thread")
      .option("--steps", o.steps, 1, 1 << 20, "training steps")
      .option("--expect", o.expected, 0, 10, "fail if a character of the test costs more nats")
      .word("--dispatch", how, {"products", "indices"}, "how training sends tokens to the experts")
      .parse(argc, argv);
  o.how = how == "products" ? dispatch::products : dispatch::indices;
  return o;
}

constexpr sizes trained{8, 64, 8, 16, 64, 128};

/// The inputs of every program of the model: the preceding characters, the next ones, the key, then the parameters.
struct model_inputs {
  value before, next, key;
  std::vector<value> parameters;

  model_inputs(dynamic::builder& b, const sizes& n)
      : before(b.input(dynamic::input<std::int32_t>({n.groups, n.tokens, context}, {"d", "", ""}))),
        next(b.input(dynamic::input<std::int32_t>({n.groups, n.tokens}, {"d", ""}))),
        key(b.input(dynamic::input<std::uint64_t>({}))),
        parameters(tensors(b, n)) {}

  /// Inputs with the shapes of the parameters: the parameters or their moments.
  static std::vector<value> tensors(dynamic::builder& b, const sizes& n) {
    const auto shapes = parameter_shapes(n);
    const auto splits = parameter_splits();
    std::vector<value> result;
    for (std::size_t k = 0; k < shapes.size(); ++k) result.push_back(b.input(dynamic::input<float>(shapes[k], splits[k])));
    return result;
  }
};

/// Adam on a batch. Outputs the loss, the parameters and both moments. The last input is the rate of this step.
dynamic::program training_step(const dynamic::mesh& m, const sizes& n, dispatch how) {
  dynamic::builder b(m);
  const model_inputs in(b, n);
  const auto first = model_inputs::tensors(b, n), second = model_inputs::tensors(b, n);
  const value rate = b.input(dynamic::input<float>({}));
  const auto g = guess_characters(in.before, in.next, in.parameters, in.key, n, how);
  const auto gradient = grad(g.loss, in.parameters);
  std::vector<value> results[3];
  for (std::size_t k = 0; k < gradient.size(); ++k) {
    results[1].push_back(0.9 * first[k] + 0.1 * gradient[k]);
    results[2].push_back(0.99 * second[k] + 0.01 * gradient[k] * gradient[k]);
    results[0].push_back(in.parameters[k] - rate * results[1][k] / (sqrt(results[2][k]) + 1e-8));
  }
  b.output(g.nats);
  for (const auto& list : results)
    for (std::size_t k = 0; k < list.size(); ++k) b.output(b.reshard(list[k], parameter_splits()[k]));
  return b.compile();
}

/// The program of a test. Outputs the nats per character of a batch, and the routing of its tokens: the experts, the
/// positions, the weights, and the auxiliary loss.
dynamic::program test_step(const dynamic::mesh& m, const sizes& n, dispatch how) {
  dynamic::builder b(m);
  const model_inputs in(b, n);
  const auto g = guess_characters(in.before, in.next, in.parameters, in.key, n, how);
  b.output(g.nats);
  for (const auto& list : {g.sent.expert, g.sent.place, g.sent.weight})
    for (const value x : list) b.output(x);
  b.output(g.sent.auxiliary_loss);
  return b.compile();
}

using tensors = std::vector<std::vector<float>>;

tensors first_parameters(const sizes& n) {
  const double scales[] = {
      1, 0.1, std::sqrt(3.0 / static_cast<double>(n.model)), std::sqrt(3.0 / static_cast<double>(n.hidden)), 0.1, 0};
  dice d(7);
  tensors all;
  for (const auto& shape : parameter_shapes(n)) {
    std::int64_t count = 1;
    for (const auto e : shape) count *= e;
    std::vector<float> w(static_cast<std::size_t>(count));
    for (auto& x : w) x = d.symmetric() * static_cast<float>(scales[all.size()]);
    all.push_back(std::move(w));
  }
  return all;
}
tensors zeros_like(const tensors& t) {
  tensors z = t;
  for (auto& w : z) std::fill(w.begin(), w.end(), 0.0F);
  return z;
}

std::vector<const void*> pointers(const batch& given, const std::uint64_t& key, const tensors& parameters) {
  std::vector<const void*> result{given.before.data(), given.next.data(), &key};
  for (const auto& w : parameters) result.push_back(w.data());
  return result;
}

void show(const char* name, const dynamic::program& p) {
  std::int64_t moves = 0;
  for (const auto& c : p.collectives()) moves += c.kind == collective_kind::all_to_all;
  std::printf("  %-10s %10.2f MB of memory %10.2f Mflop   sends %9.3f MB, %lld all_to_all\n", name,
              static_cast<double>(p.peak_bytes_per_device()) * 1e-6, static_cast<double>(p.flops_per_device()) * 1e-6,
              static_cast<double>(p.traffic().bytes) * 1e-6, static_cast<long long>(moves));
}

/// Compares the routing of the program with Algorithm 1 as the paper prints it, one token after another. Prints the
/// differences.
bool is_algorithm_1(const std::vector<dynamic::any_array>& result, const sizes& n, const char* mesh) {
  const auto *e1 = result[1].data<std::int32_t>(), *e2 = result[2].data<std::int32_t>();
  const auto *p1 = result[3].data<std::int32_t>(), *p2 = result[4].data<std::int32_t>();
  const auto *g1 = result[5].data<float>(), *g2 = result[6].data<float>();
  std::int64_t sent = 0, overflown = 0;
  for (std::int64_t g = 0; g < n.groups; ++g) {
    std::vector<std::int64_t> c(static_cast<std::size_t>(n.experts)), held(c.size());
    const auto take = [&](std::int64_t s, const std::int32_t* e, const std::int32_t* p, const float* w) {
      const auto expert = static_cast<std::size_t>(e[s]);
      const bool has_room = c[expert] < n.capacity;
      const bool is_sent = w[s] > 0;
      sent += is_sent;
      overflown += !has_room;
      held[expert] += is_sent;
      return p[s] == c[expert]++ && (has_room || !is_sent);
    };
    for (std::int64_t s = g * n.tokens; s < (g + 1) * n.tokens; ++s)
      if (!take(s, e1, p1, g1) || e1[s] == e2[s]) return std::printf("%s: token %lld\n", mesh, static_cast<long long>(s)), false;
    for (std::int64_t s = g * n.tokens; s < (g + 1) * n.tokens; ++s)
      if (!take(s, e2, p2, g2)) return std::printf("%s: token %lld, second\n", mesh, static_cast<long long>(s)), false;
    if (*std::max_element(held.begin(), held.end()) > n.capacity) return std::puts("an expert beyond its capacity"), false;
  }
  std::printf("  %-10s %lld of %lld decisions are sent, %lld find no room\n", mesh, static_cast<long long>(sent),
              static_cast<long long>(2 * n.groups * n.tokens), static_cast<long long>(overflown));
  return true;
}

/// Compares the routing and the loss on several meshes, and by both methods.
bool compare(const batch& given, std::uint64_t key, const tensors& parameters) {
  std::vector<dynamic::any_array> expected;
  for (const std::int64_t devices : {1, 2, 3, 8})
    for (const auto how : {dispatch::products, dispatch::indices}) {
      const auto p = test_step(dynamic::mesh({{"d", devices}}), trained, how);
      const auto result = p.run(simulated{}, pointers(given, key, parameters));
      const auto name = "d=" + std::to_string(devices);
      if (expected.empty()) expected = result;
      if (how == dispatch::indices && !is_algorithm_1(result, trained, name.c_str())) return false;
      for (std::size_t k = 1; k <= 4; ++k)  // experts and places
        if (result[k].bytes != expected[k].bytes) return std::printf("%s: the routing differs\n", name.c_str()), false;
      for (std::size_t k = 5; k <= 6; ++k)  // the weights
        for (std::size_t i = 0; i < result[k].bytes.size() / sizeof(float); ++i)
          if ((result[k].data<float>()[i] > 0) != (expected[k].data<float>()[i] > 0))
            return std::printf("%s: another token is sent\n", name.c_str()), false;
      if (!(std::abs(*result[0].data<float>() - *expected[0].data<float>()) < 1e-4F))
        return std::printf("%s: costs %f nats\n", name.c_str(), static_cast<double>(*result[0].data<float>())), false;
    }
  return true;
}

double train(const options& o, const text_file& text, tensors& parameters) {
  const auto p = training_step(dynamic::mesh({{"d", o.devices}}), trained, o.how);
  tensors moments[2] = {zeros_like(parameters), zeros_like(parameters)};
  dice d(1);
  float rate = 0, first = 0;
  examples::progress progress("step", static_cast<double>(trained.groups * trained.tokens));
  for (int k = 1; k <= o.steps; ++k) {
    const auto given = text.batch_of_training(trained.groups, trained.tokens, d);
    const auto key = static_cast<std::uint64_t>(k);
    const double slower = std::min(1.0, 2.0 * (1 - static_cast<double>(k) / (o.steps + 1)));  // the second half decreases to 0
    rate = static_cast<float>(0.004 * slower * std::sqrt(1 - std::pow(0.99, k)) / (1 - std::pow(0.9, k)));
    auto inputs = pointers(given, key, parameters);
    for (const auto& m : moments)
      for (const auto& w : m) inputs.push_back(w.data());
    inputs.push_back(&rate);
    const auto result = p.run(threads{}, inputs);
    std::size_t next = 1;
    for (auto* list : {&parameters, &moments[0], &moments[1]})
      for (auto& w : *list) {
        std::memcpy(w.data(), result[next].bytes.data(), result[next].bytes.size());
        ++next;
      }
    if (k == 1) first = *result[0].data<float>();
    progress.show(k, o.steps);
  }
  std::printf("training: a character costs %.3f nats before the first step\n", static_cast<double>(first));
  double total = 0;
  const auto test = test_step(dynamic::mesh({{"d", o.devices}}), trained, o.how);
  const auto batches = text.test_batches(trained.groups, trained.tokens);
  for (const auto& given : batches)
    total += static_cast<double>(*test.run(threads{}, pointers(given, 1, parameters))[0].data<float>());
  return total / static_cast<double>(batches.size());
}

/// Plans the layer with its gradients at the paper's scale: the number of experts and groups is the number of devices,
/// C = 2S/E (3.1). The work and the memory of a device are constant, except for S x E gates and M x E replicated
/// weights.
bool show_scaling() {
  bool is_constant = true;
  for (const auto how : {dispatch::products, dispatch::indices}) {
    std::printf("one layer, forward and backward, one expert for each device, by %s: for each device\n",
                how == dispatch::products ? "products with one-hot tensors" : "indices");
    std::puts("  experts = devices   weights MB   peak memory MB   Gflop   of these for gates   MB sent");
    std::int64_t first = 0;
    for (const std::int64_t devices : {8, 32, 128, 512, 2048}) {
      const sizes n{devices, 1024, devices, 2048 / devices, 1024, 8192};
      dynamic::builder b(dynamic::mesh({{"d", devices}}));
      const value x = b.input(dynamic::input<float>({n.groups, n.tokens, n.model}, {"d", "", ""}));
      const value key = b.input(dynamic::input<std::uint64_t>({}));
      const std::vector<value> w{b.input(dynamic::input<float>({n.model, n.experts}, {"", ""})),
                                 b.input(dynamic::input<float>({n.experts, n.model, n.hidden}, {"d", "", ""})),
                                 b.input(dynamic::input<float>({n.experts, n.hidden, n.model}, {"d", "", ""}))};
      const auto result = layer(x, w[0], w[1], w[2], key, n, how);
      const auto gradient = grad(mean(result.outputs * result.outputs) + result.sent.auxiliary_loss, w);
      for (std::size_t k = 0; k < w.size(); ++k) b.output(w[k] - 0.1 * gradient[k]);
      const auto p = b.compile();
      const auto weights = 4 * (n.model * n.experts + 2 * n.model * n.hidden), peak = p.peak_bytes_per_device();
      const auto gates = 4 * n.tokens * n.model * n.experts;  // the product, and its gradient by the weights
      std::printf("  %17lld %12.1f %16.1f %7.1f %20.1f %9.1f\n", static_cast<long long>(devices),
                  static_cast<double>(weights) * 1e-6, static_cast<double>(peak) * 1e-6,
                  static_cast<double>(p.flops_per_device()) * 1e-9, static_cast<double>(gates) * 1e-9,
                  static_cast<double>(p.traffic().bytes) * 1e-6);
      if (first == 0) first = peak;
      is_constant = is_constant && peak < first + 16 * (n.tokens + n.model) * n.experts;
      // Buffers are sent to the experts and back, and one gradient to them. The gradient by the gate's weights is
      // summed.
      const auto sent = 3 * 4 * n.experts * n.capacity * n.model + 2 * 4 * n.model * n.experts;
      if (p.traffic().bytes != sent / devices * (devices - 1)) return std::puts("the bytes differ from the formula"), false;
    }
  }
  if (!is_constant) std::puts("memory is not constant");
  return is_constant;
}

int run(const options& o) {
  const text_file text(GSPMD_EXAMPLE_DIR "/jargon.txt");
  std::printf("a training step on %lld device(s): for each device\n", static_cast<long long>(o.devices));
  const dynamic::mesh m({{"d", o.devices}});
  show("products", training_step(m, trained, dispatch::products));
  show("indices", training_step(m, trained, dispatch::indices));

  auto parameters = first_parameters(trained);
  const double nats = train(o, text, parameters);
  std::printf("test on text that it has not seen: a character costs %.3f nats after %d steps\n", nats, o.steps);
  std::printf("for comparison: %.3f nats by the frequency of characters, %.3f by the frequency of pairs\n",
              text.nats_of_characters(), text.nats_of_pairs());

  std::puts("the routing on several meshes, by products and by indices");
  const bool is_equal = compare(text.test_batches(trained.groups, trained.tokens)[0], 1, parameters);
  const bool is_planned = show_scaling();
  const bool is_routed = examples::check("all meshes route each token as Algorithm 1 of the paper", is_equal);
  const bool is_scaling =
      examples::check("a device sends the bytes of the formula; its memory grows only by the gates", is_planned);
  char claim[96];
  std::snprintf(claim, sizeof claim, "a character of the test costs %.3f nats; at most %.1f is allowed", nats, o.expected);
  return examples::check(claim, nats <= o.expected) && is_routed && is_scaling ? 0 : 1;
}

}  // namespace
}  // namespace moe

int main(int argc, char** argv) {
  return examples::run_main([&] { return moe::run(moe::parse(argc, argv)); });
}
