// SPDX-License-Identifier: Apache-2.0
#include <gspmd/gspmd.hpp>

using namespace gspmd;

/// Returns true if some value of this global shape is partial over exactly this axis.
template <class Step, class Dims>
constexpr bool has_partial(std::string_view axis) {
  const auto& mesh = Step::mesh_type::info;
  for (const auto& v : Step::view.values)
    if (v.global == Dims::value && v.layout.partial == detail::axis_bit(mesh.find(axis))) return true;
  return false;
}

// ---- an MLP: the first weight is split by columns, the second by rows; one all_reduce over model ----
constexpr auto mlp = [](auto x, auto w1, auto w2) {
  auto h = relu(einsum<"bd,df->bf">(x, w1));
  return einsum<"bf,fd->bd">(h, w2);
};
template <int Data, int Model>
using mlp_step = compile<mlp, mesh<axis<"data", Data>, axis<"model", Model>>, input<float, shape<64, 512>, split<"data", _>>,
                         input<float, shape<512, 2048>, split<_, "model">>, input<float, shape<2048, 512>, split<"model", _>>>;
using small = mlp_step<2, 4>;
static_assert(small::collectives == collectives{all_reduce<"model">});
static_assert(!(small::collectives == collectives{all_reduce<"data">}) && !(small::collectives == collectives{}));
static_assert(small::traffic.bytes == 2 * 3 * 32 * 512 * 4 / 4, "a ring sends 2 (n - 1) / n of the 32 x 512 floats");
static_assert(small::traffic.over("model").bytes == small::traffic.bytes && small::traffic.over("data").bytes == 0);
template <class Step, fixed_string Axis>
concept counts_over = requires { typename std::bool_constant<(Step::traffic.over(Axis.view()).bytes >= 0)>; };
static_assert(counts_over<small, "data"> && !counts_over<small, "rows">, "an axis that the mesh does not have is no constant");
static_assert(small::traffic.over("model").in(collective_kind::all_reduce).collectives == 1 &&
              small::traffic.over("data").in(collective_kind::all_reduce).collectives == 0 &&
              small::traffic.over("model").in(collective_kind::all_gather).messages == 0);
static_assert(small::input_shard<1>::local_extents == shape<512, 512>::value);
static_assert(small::output_shard<0>::local_extents == shape<32, 512>::value);
static_assert(small::peak_bytes_per_device >= (32 * 512 + 512 * 512 + 512 * 512 + 32 * 512) * 4);
static_assert(is_within_budget<small, max_bytes<98'304>, max_bytes<0, over<"data">>, max_collectives<1>, max_memory<4 * MiB>>);
static_assert(!is_within_budget<small, max_bytes<98'303>> && !is_within_budget<small, max_collectives<0>>);
static_assert(!is_within_budget<small, max_bytes<1, over<"model">>> && !is_within_budget<small, max_memory<1 * MiB>>);

// ---- one program for all devices: the size of the program does not depend on the number of devices ----
using large = mlp_step<64, 64>;
using one = mlp_step<1, 1>;
static_assert(mlp_step<2, 2>::view.steps.size() == large::view.steps.size());
static_assert(mlp_step<2, 2>::collectives == large::collectives && large::device_count == 4096);
static_assert(one::collectives == collectives{} && one::traffic.bytes == 0);

// ---- gradients: Megatron's column-parallel linear layer; the rows of the weight [out, in] are split ----
constexpr auto linear_gradients = [](auto x, auto w, auto dy) {
  auto y = einsum<"bi,oi->bo">(x, w);
  return grad(sum(y * dy), std::tuple{x, w});
};
using megatron = compile<linear_gradients, mesh<axis<"tp", 4>>, input<float, shape<8, 32>, split<_, _>>,
                         input<float, shape<64, 32>, split<"tp", _>>, input<float, shape<8, 64>, split<_, "tp">>>;
static_assert(has_partial<megatron, shape<8, 32>>("tp"), "the gradient of the input is partial over tp");
static_assert(megatron::collectives == collectives{all_reduce<"tp">}, "and that is all that is summed");
static_assert(megatron::output_shard<1>::local_extents == shape<16, 32>::value,
              "the gradient of the weight is sharded as the weight");

// ---- gradients: a scale that all positions of a split sequence share ----
constexpr auto scale_gradients = [](auto x, auto gamma, auto dy) { return grad(sum(x * gamma * dy), std::tuple{x, gamma}); };
using scale = compile<scale_gradients, mesh<axis<"tp", 4>>, input<float, shape<128, 32>, split<"tp", _>>,
                      input<float, shape<32>, split<_>>, input<float, shape<128, 32>, split<"tp", _>>>;
static_assert(scale::output_shard<0>::local_extents == shape<32, 32>::value,
              "the gradient of the input is split along the sequence");
static_assert(has_partial<scale, shape<32>>("tp"), "the gradient of the weight is partial");
static_assert(scale::collectives == collectives{all_reduce<"tp">});
static_assert(scale::traffic.bytes == 2 * 3 * 32 * 4 / 4);

// ---- sizes that do not divide evenly, extents 0 and 1, more devices than elements ----
using uneven = compile<mlp, mesh<axis<"data", 8>, axis<"model", 3>>, input<float, shape<5, 7>, split<"data", _>>,
                       input<float, shape<7, 10>, split<_, "model">>, input<float, shape<10, 7>, split<"model", _>>>;
static_assert(uneven::collectives == collectives{all_reduce<"model">});
static_assert(uneven::output_shard<0>::local_extents == shape<1, 7>::value);
static_assert(uneven::input_shard<1>::local_extents == shape<7, 4>::value);
using empty = compile<mlp, mesh<axis<"data", 2>, axis<"model", 2>>, input<float, shape<0, 1>, split<"data", _>>,
                      input<float, shape<1, 1>, split<_, "model">>, input<float, shape<1, 1>, split<"model", _>>>;
static_assert(empty::output_shard<0>::local_elems == 0);
