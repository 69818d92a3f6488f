#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints numbers.hpp: parameters after 20 updates by each optimizer, from the formulae that were published, in doubles.

The formulae are those of the documentation of torch.optim (SGD, Adam, AdamW and the learning-rate schedulers), You, Gitman and Ginsburg 2017
(LARS), You et al. 2020 (LAMB), Shazeer and Stern 2018 (Adafactor), Pascanu, Mikolov and Bengio 2013 (clipping). Nothing is shared with the
library, and nothing but Python is needed:

    tests/nn/reference/reference.py > tests/nn/reference/numbers.hpp
"""
import math

SHAPES = [(5, 3), (7,), (2, 3, 4)]
SIZES = [math.prod(s) for s in SHAPES]
STEPS = 20


def first_parameters():
    return [[((7 * i + 3 * k) % 13 - 6) / 8 if k != 1 or i != 2 else 0.0 for i in range(n)] for k, n in enumerate(SIZES)]


def gradients(parameters, step):
    """Returns the gradients of the sum over all tensors of sum(p * a) + sum(p * p) / 8."""
    return [[((7 * i + 13 * step + 5 * k) % 23 - 11) / 8 + p / 4 for i, p in enumerate(tensor)] for k, tensor in enumerate(parameters)]


def norm(x):
    return math.sqrt(math.fsum(e * e for e in x))


class sgd:
    def __init__(self, rate, momentum=0, nesterov=False, weight_decay=0):
        self.rate, self.momentum, self.nesterov, self.decay = rate, momentum, nesterov, weight_decay
        self.buffer = [None] * len(SIZES)

    def update(self, k, p, g, n):
        lr = self.rate(n)
        g = [a + self.decay * b for a, b in zip(g, p)]
        if self.momentum:
            b = self.buffer[k]
            b = g if b is None else [self.momentum * x + y for x, y in zip(b, g)]
            self.buffer[k] = b
            g = [x + self.momentum * y for x, y in zip(g, b)] if self.nesterov else b
        return [a - lr * b for a, b in zip(p, g)]


class adam:
    """kind: adam, adamw or lamb. Tensors of fewer dims than `least_rank` do not decay, a group of parameters of their own in torch."""

    def __init__(self, kind, rate, weight_decay, epsilon=1e-8, b1=0.9, b2=0.999, least_rank=0):
        self.least_rank = least_rank
        self.kind, self.rate, self.decay, self.epsilon, self.b1, self.b2 = kind, rate, weight_decay, epsilon, b1, b2
        self.m, self.v = [[0.0] * n for n in SIZES], [[0.0] * n for n in SIZES]

    def update(self, k, p, g, n):
        lr, t = self.rate(n), n + 1
        decay = self.decay if len(SHAPES[k]) >= self.least_rank else 0
        if self.kind == "adam":
            g = [a + decay * b for a, b in zip(g, p)]
        if self.kind == "adamw":
            p = [a - lr * decay * a for a in p]
        self.m[k] = [self.b1 * m + (1 - self.b1) * a for m, a in zip(self.m[k], g)]
        self.v[k] = [self.b2 * v + (1 - self.b2) * a * a for v, a in zip(self.v[k], g)]
        m_hat = [m / (1 - self.b1**t) for m in self.m[k]]
        v_hat = [v / (1 - self.b2**t) for v in self.v[k]]
        r = [m / (math.sqrt(v) + self.epsilon) for m, v in zip(m_hat, v_hat)]
        if self.kind != "lamb":
            return [a - lr * b for a, b in zip(p, r)]
        step = [b + decay * a for a, b in zip(p, r)]
        ratio = norm(p) / norm(step) if norm(p) > 0 and norm(step) > 0 else 1
        return [a - lr * ratio * b for a, b in zip(p, step)]


class lars:
    def __init__(self, rate, momentum, weight_decay, trust):
        self.rate, self.momentum, self.decay, self.trust = rate, momentum, weight_decay, trust
        self.v = [[0.0] * n for n in SIZES]

    def update(self, k, p, g, n):
        w, d = norm(p), norm(g)
        local = self.trust * w / (d + self.decay * w) if w > 0 and d > 0 else 1
        self.v[k] = [self.momentum * v + self.rate(n) * local * (a + self.decay * b) for v, a, b in zip(self.v[k], g, p)]
        return [a - v for a, v in zip(p, self.v[k])]


class adafactor:
    def __init__(self, clip=1, e1=1e-30, e2=1e-3):
        self.clip, self.e1, self.e2 = clip, e1, e2
        self.state = [None] * len(SIZES)

    def update(self, k, p, g, n):
        t = n + 1
        rate = min(1e-2, 1 / math.sqrt(t))
        b2 = 1 - t**-0.8
        rms = lambda x: norm(x) / math.sqrt(len(x))
        alpha = max(self.e2, rms(p)) * rate
        if len(SHAPES[k]) < 2:
            v = self.state[k] or [0.0] * len(p)
            v = [b2 * x + (1 - b2) * (a * a + self.e1) for x, a in zip(v, g)]
            self.state[k] = v
            u = [a / math.sqrt(x) for a, x in zip(g, v)]
        else:
            rows, columns = SHAPES[k][-2:]
            size, u = rows * columns, []
            state = self.state[k] or [([0.0] * rows, [0.0] * columns)] * (len(p) // size)
            self.state[k] = []
            for j, (r, c) in enumerate(state):  # the matrices of the tensor
                q = [a * a + self.e1 for a in g[j * size:(j + 1) * size]]
                r = [b2 * x + (1 - b2) * math.fsum(q[i * columns:(i + 1) * columns]) for i, x in enumerate(r)]
                c = [b2 * x + (1 - b2) * math.fsum(q[i::columns]) for i, x in enumerate(c)]
                self.state[k].append((r, c))
                total = math.fsum(r)
                u += [g[j * size + i] / math.sqrt(r[i // columns] * c[i % columns] / total) for i in range(size)]
        over = max(1.0, rms(u) / self.clip)
        return [a - alpha * b / over for a, b in zip(p, u)]


def clipped(grads, limit):
    total = math.sqrt(math.fsum(e * e for g in grads for e in g))
    return [[e * min(1, limit / total) for e in g] for g in grads]


def constant(rate):
    return lambda n: rate


def warmed_cosine(n):
    after = max(n - 5, 0)
    return min(1, (n + 1) / 5) * (0.01 + (0.1 - 0.01) * (1 + math.cos(math.pi * min(after, 12) / 12)) / 2)


CASES = {
    "sgd": (sgd(constant(0.1), weight_decay=0.01), None),
    "momentum": (sgd(constant(0.05), momentum=0.9), None),
    "nesterov": (sgd(constant(0.05), momentum=0.8, nesterov=True, weight_decay=0.02), None),
    "adam": (adam("adam", constant(0.1), 0.0), None),
    "adam_decayed": (adam("adam", constant(0.02), 0.1, b1=0.8, b2=0.99), None),
    "adamw": (adam("adamw", constant(0.05), 0.1), None),
    "lamb": (adam("lamb", constant(0.05), 0.01, epsilon=1e-6), None),
    "lars": (lars(constant(2.0), 0.9, 0.01, 0.02), None),
    "adafactor": (adafactor(), None),
    "adam_masked": (adam("adam", constant(0.02), 0.1, b1=0.8, b2=0.99, least_rank=2), None),
    "adamw_masked": (adam("adamw", constant(0.05), 0.1, least_rank=2), None),
    "lamb_masked": (adam("lamb", constant(0.05), 0.1, epsilon=1e-6, least_rank=2), None),
    "warmed_cosine": (adam("adam", warmed_cosine, 0.0), None),
    "exponential": (sgd(lambda n: 0.1 * 0.5 ** (n / 10)), None),
    "steps": (sgd(lambda n: 0.1 * 0.5 ** (n // 6)), None),
    "clipped": (sgd(constant(0.1)), 1.5),
}

print("""// SPDX-License-Identifier: Apache-2.0
// Made by reference.py.
#pragma once

#include <array>
#include <string_view>

namespace optimizer_reference {

struct parameters_after {
  std::string_view optimizer;
  std::array<double, %d> parameters;
};

// clang-format off
inline constexpr parameters_after all[] = {""" % sum(SIZES))
for name, (optimizer, limit) in CASES.items():
    parameters = first_parameters()
    for step in range(STEPS):
        g = gradients(parameters, step)
        if limit:
            g = clipped(g, limit)
        parameters = [optimizer.update(k, p, g[k], step) for k, p in enumerate(parameters)]
    numbers = [repr(e) for p in parameters for e in p]
    lines = ["  " + ", ".join(numbers[i:i + 5]) for i in range(0, len(numbers), 5)]
    print(f'{{"{name}",\n {{' + ",\n".join(lines).strip() + "}},")
print("""};
// clang-format on

}  // namespace optimizer_reference""")
