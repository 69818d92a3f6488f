// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Optimizers: updates of parameters from the gradients of a step, in compiled programs and in programs planned at run
/// time. gspmd.hpp does not include them. An optimizer is a struct of numbers with two functions:
///
///     init(params) -> state                       zeros, and a counter of updates
///     update(params, grads, state) -> updated     with the members `params` and `state`, of the types of the arguments
///
/// Parameters are floats: a value or a group of values (structs, arrays, vectors, tuples, also nested). `grads` is
/// grad(loss, params) or the result of clip_by_global_norm. An optional fourth argument of `update` is the rate of this
/// update. It is a value of rank 0 and replaces the schedule in `rate`.
///
/// Optimizers consist of ordinary operators on whole tensors, so completion propagates shardings through them. Moments
/// have the sharding of their parameters. A partial gradient is reduced once, or reduce_scattered once. Norms and means
/// are computed over the whole tensor. Annotated parameters and states, for example inputs with a sharding, are
/// returned with the same sharding for the next step.
/// Rates and the corrections of moments are computed in double, and updates in the type of the parameter. bf16 and f16
/// are computed in float. New parameters and states are rounded once, when they are stored.
///
/// **Errors.** Compile error, or gspmd::error at run time: a parameter that is not a float; gradients or a state with a
/// form, shape or type other than the parameters'.
/// **Example.**
///
///     constexpr optimizer::adamw adamw{.rate = optimizer::warm_up(100, optimizer::cosine_decay(3e-4, 10'000))};
///     constexpr auto train = [](auto w, auto state, auto x) { return adamw.update(w, grad(loss(w, x), w), state); };
///     using step = compile<train, pod, w_in, optimizer::state_of<optimizer::adamw, w_in>, x_in>;

#include "gspmd/nn/optimizer/adafactor.hpp"
#include "gspmd/nn/optimizer/adam.hpp"
#include "gspmd/nn/optimizer/layerwise.hpp"
#include "gspmd/nn/optimizer/norms.hpp"
#include "gspmd/nn/optimizer/schedules.hpp"
#include "gspmd/nn/optimizer/sgd.hpp"
#include "gspmd/nn/optimizer/state_of.hpp"
#include "gspmd/program/input_arrays.hpp"
