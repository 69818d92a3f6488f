// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Optimizers, which gspmd.hpp does not include: what is done with the gradients of a step, in programs that are compiled and in those that
/// are built at run time. An optimizer is a struct of numbers with two functions,
///
///     init(params) -> state                       zeros, and a counter of updates
///     update(params, grads, state) -> updated     with the members `params` and `state`, of the types given
///
/// Parameters are floats: a value, or a group of them, structs declared with Hana in structs, arrays, vectors, tuples. `grads` is grad(loss,
/// params), or what clip_by_global_norm makes of it. A fourth argument, a value of rank 0, is the rate of this update, in the place of the
/// schedule in `rate`.
///
/// They are made of the operators of any program, for whole tensors, so shardings are completed through them: moments lie as their
/// parameters do, a gradient that is partial is reduced, or reduce_scattered, once, and norms and means are those of the whole tensor. Parameters
/// and state that are annotated, such as inputs with a sharding, are returned with the same sharding for the next step.
///
/// Rates and the corrections of moments are computed in double, and updates in the type of the parameter. bf16 and f16 are computed as float:
/// new parameters and state are rounded once, when they are stored.
///
/// Errors, of one sentence when compiling and a gspmd::error at run time: a parameter that is no float; gradients or a state of another
/// form, shape or type than the parameters.
///
///     constexpr optimizer::adamw adamw{.rate = optimizer::warm_up(100, optimizer::cosine_decay(3e-4, 10'000))};
///     constexpr auto train = [](auto w, auto state, auto x) { return adamw.update(w, grad(loss(w, x), w), state); };
///     using step = compile<train, pod, w_in, optimizer::state_of<optimizer::adamw, w_in>, x_in>;

#include "gspmd/input_arrays.hpp"
#include "gspmd/optimizer/adafactor.hpp"
#include "gspmd/optimizer/adam.hpp"
#include "gspmd/optimizer/layerwise.hpp"
#include "gspmd/optimizer/norms.hpp"
#include "gspmd/optimizer/schedules.hpp"
#include "gspmd/optimizer/sgd.hpp"
#include "gspmd/optimizer/state_of.hpp"
