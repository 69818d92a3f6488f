// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/support/language.hpp"

/// Constants that affect only the speed of plans and kernels, each with its measurement. Other machines may need other
/// values. They do not affect results, except for the last bits of sums. (The parts of sums,
/// ir/sum_parts.hpp, are not tuning.)
namespace gspmd::detail {

// ---- plans ----

/// The default network, for programs without a network (plan/network.hpp). A device sends 31.25 GB/s (32 picoseconds a
/// byte) to any device and computes 10^12 flops/s. A message takes only the time of its bytes. An all_to_all over more
/// than `untapered_devices` takes longer. So the chosen plans send the fewest bytes, for tensors of any size. There are
/// two exceptions: all_to_alls over many devices, and large products, where the planner compares gathering the operands
/// on each device with adding up partial values.
///
/// A latency of a microsecond for each message was worse: an all_reduce has twice the messages of an all_gather. So
/// plans of small programs gathered operands instead of reducing, and sent up to 128 times the bytes. For example,
/// softmax along a split dim sent 19,200 bytes instead of 384, with the same number of collectives.
inline constexpr std::int64_t default_picoseconds_per_kib = 32 * 1024;
/// The number of devices that a tapered switch connects at the full rate. More devices share the links
/// (collective_time.hpp).
inline constexpr std::int64_t untapered_devices = 16;
inline constexpr std::int64_t default_picoseconds_per_1024_flops = 1024;
/// Added to each extent of a product (rows, columns, terms) in its estimated time. Small extents do not fill vectors
/// and tiles, and leave less time to overlap with. With more than 32, products with a vector would take longer than the
/// transfer of their bytes.
inline constexpr std::int64_t added_to_extents_of_product = 16;
/// The flops that a device computes in the time to read or write a byte of memory, if the program does not specify it.
/// An A100 has 13, sockets with AVX-512 have about 10. Units for 16-bit products have 140 to 300.
inline constexpr std::int64_t default_flops_per_byte_of_memory = 10;
/// A device takes a microsecond to begin an operator. Work that fits into this time is free.
inline constexpr std::int64_t picoseconds_to_begin = std::int64_t{1} << 20;
/// The time to begin a collective of any size on threads: about 20 microseconds. The default network does not include
/// it.
inline constexpr std::int64_t picoseconds_to_begin_collective = std::int64_t{20} << 20;
/// An operator without communication whose work all devices along an axis repeat is split over the axis if it takes
/// this long, 67 microseconds. The split needs a collective somewhere, which takes about 20 microseconds to begin.
inline constexpr std::int64_t least_picoseconds_of_shared_work = std::int64_t{1} << 26;

/// Limits of the search for better plans. A program is planned again only if another plan can save this time, a
/// microsecond: the time to send 32 KiB, or to begin a message. Programs of at most `most_values_for_alternatives`
/// values are planned by several rules (choose/whole_plans.hpp). In larger programs, plan_search.hpp tries a value only
/// if at least 1 / `least_part_of_search` of the possible gain is spent around it. The search ends after
/// `most_choices_of_search` choices for operators.
///
/// With 256 choices, a Transformer layer with its gradient takes clang++ 10 s more, and sends the same number of bytes.
/// Among 5,994 small programs, some plans are more than 5 % worse than the best plan: 26 with 64 or 48 choices, 29 with
/// 40, and 32 with 32. The plan for a training step of the example moe on 8 devices is the same with 0 to 1,024
/// choices.
///
/// A gather also takes a detour with less padding only if the detour saves this time (choose/reshard.hpp).
inline constexpr std::int64_t least_picoseconds_of_search = std::int64_t{1} << 20;
/// A plan that replicates all work is tried if another plan can save this time: 17 microseconds, the time to send 512
/// KiB. So a loop over a grid of 40 x 30, which a test has, is planned like a loop over a large grid.
inline constexpr std::int64_t least_picoseconds_of_replication = std::int64_t{1} << 24;
inline constexpr int most_values_for_alternatives = 32;
inline constexpr int least_part_of_search = 16;
inline constexpr int most_choices_of_search = 64;
inline constexpr int most_values_in_order_of_search = 32;

/// A loop-invariant value is recomputed in each iteration if that reads this many bytes less, on all devices together.
/// Smaller values stay in caches.
inline constexpr std::int64_t least_bytes_of_kept_invariants = std::int64_t{1} << 20;

/// The size limits for joined messages. A message takes about 20 us to send, and joined values are copied once more.
/// Measured with MPI messages between two processes of a node, 2 to 16 values at a time, relative to separate messages:
/// values of up to 8 KiB gain (16 of 2 KiB: 0.45 to 0.53). all_gathers of 16 KiB take 1.06 (two) to 1.55 (four), of 32
/// KiB 1.4 to 1.7. all_reduces lose from 64 KiB on.
inline constexpr std::int64_t most_joined_bytes = 8 * 1024;          // of a value
inline constexpr std::int64_t most_joined_bytes_in_all = 64 * 1024;  // of all values of a message

/// The fewest terms, or adjacent results, that make a contraction of a sum of products. With fewer, it was faster to
/// compute the products first (256 x 256 and 65536 x 16 floats, sums of rows and of columns).
inline constexpr std::int64_t least_terms_of_contraction = 64;

/// During an exchange of halos, a loop computes its interior if the interior has this many elements. A smaller interior
/// takes less time than the extra cost of a separate boundary.
inline constexpr std::int64_t least_overlapped_elems = 32 * 1024;
/// The most elements of an interior whose halo is along a dim other than the first. The boundary of its rows is no
/// longer in the cache afterwards, and costs more, the more rows were computed before it.
inline constexpr std::int64_t most_overlapped_rows_elems = 128 * 1024;

/// The most sweeps for each exchange that the time of a network can select (passes/ghost/ghost_zones.hpp). With 48, the
/// cost of a message is about a fiftieth of its cost with an exchange in each sweep.
inline constexpr std::int64_t most_ghost_sweeps = 48;

/// Steps over the same rows run block by block if their data is larger than the second-level cache. A block has this
/// many bytes, counting all data that the steps read and write. Rows longer than `most_row_bytes` would not stay in
/// that cache.
inline constexpr std::int64_t blocked_bytes = 128 * 1024;
inline constexpr std::int64_t least_blocked_bytes = std::int64_t{1} << 20;
inline constexpr std::int64_t most_row_bytes = 512 * 1024;
/// Steps with less data, but at least this much, are a single block. The data exceeds the first-level cache. Compiled
/// programs run all steps on one row before the next row. If rows have only a few elements, loops over all rows are
/// faster.
inline constexpr std::int64_t least_row_loop_bytes = 128 * 1024;
/// A value of this many bytes, which fills the first-level cache, is recomputed if that is as cheap as reading it.
inline constexpr std::int64_t least_recomputed_bytes = 64 * 1024;
/// The number of rows of a block of rows that run through each step together, and the most bytes that a step reads and
/// writes for these rows. Rows from beyond the second-level cache are prefetched during the computation, so fewer of
/// these rows run together.
inline constexpr std::int64_t most_rows_together = 4, rows_together_bytes = 32 * 1024, far_rows_together_bytes = 4 * 1024;

// ---- kernels ----

/// If a loop has fewer rows, the threads of a device compute parts of rows instead of whole rows. With 16 rows, one of
/// four threads has at most a fourth more work than another.
inline constexpr std::int64_t least_rows_of_parts = 16;
/// If rows have too many pieces to finish row by row, rows with this many elements together are computed piece by
/// piece. So their data is still in the cache. The heat equation on 256^3 doubles took 1.20 to 1.24 of the time of
/// hand-written code with 16384, and 1.05 with 4096 and 2048.
inline constexpr std::int64_t row_piece_elems = 4096;
/// Shorter rows become loops of constant length. For longer rows, only the remainder of steps of 64 elements
/// (for_each_index) is constant.
inline constexpr std::int64_t constant_row_elems = 256;
/// A single reduced row with at least this many elements is compiled for any length. This is the fewest elements that
/// are reduced while they are computed: 16 vectors of 8 floats or doubles (computed_elements::runs).
inline constexpr std::int64_t least_accumulated_elems = 128;
/// A row with at most this many elements is computed whole before it is reduced.
inline constexpr std::int64_t fused_block_elems = 1024;
/// The most elements of a block in an interpreted loop. It is long enough to hide the dispatch, and short enough for a
/// dozen blocks to stay in the first-level cache.
inline constexpr std::int64_t interpreted_block_elems = 512;
/// The same limit if a single kernel computes everything from memory. Then no data has to stay in the cache between
/// kernels.
inline constexpr std::int64_t single_kernel_block_elems = 4096;
/// The most blocks of an interpreted loop that are filled once for each run and then stay in the cache.
inline constexpr int most_lasting_blocks = 16;
/// Lines of at most this many elements are sorted by insertion, because counting digits takes longer.
inline constexpr std::int64_t most_inserted_elems = 64;
/// The bytes of a piece of the result of a reduction over dims or windows. A piece stays in the first-level cache.
inline constexpr std::int64_t reduced_piece_bytes = 8192;
/// The bytes that a loop computes before it reduces them. They are still in the first-level cache then.
inline constexpr std::int64_t computed_part_bytes = 16 * 1024;
/// The most multiplications of a product that is faster without a library call. The second constant is the limit for
/// products with contiguous columns, in squares of a vector's lanes (kernels/small_product.hpp). Time relative to an
/// OpenBLAS call for each product, with 64-byte vectors: floats 4x4x4 0.3, 8x8x8 0.5, 16x16x16 0.85; doubles 0.5, 0.95
/// and 1.3 (1.08 with calls).
inline constexpr std::int64_t worth_a_gemm_call = 512;
inline constexpr std::int64_t most_small_product_in_vectors = 16;
/// The terms of a product of narrow elements that are widened at a time: bf16 [2048,2048] by [2048,2048] takes 115 ms,
/// and 131 ms with copies of whole operands. `worth_panels_elems` is the fewest elements of both operands for each
/// product of a batch.
inline constexpr std::int64_t narrow_panel_terms = 512;
inline constexpr std::int64_t worth_panels_elems = 64;
/// The fewest multiplications of a convolution that uses oneDNN, if oneDNN is available.
inline constexpr std::int64_t worth_a_convolution_call = 1 << 16;
/// Buffers of at least this size are written around the caches if they are only written. At 16 MiB that costs 5 % or
/// gains nothing; at 64 MiB it gains 15-30 % (bench/collectives.cpp).
inline constexpr std::int64_t stream_from_bytes = std::int64_t{24} << 20;
/// The fewest bytes of a row for streaming stores of a loop's results. Time relative to plain stores, on one thread:
/// the heat equation on 256^3 doubles, rows of 2 KiB, 1.1 to 1.3. Jacobi's method on 64 MiB, rows of 4 KiB 1.00, rows
/// of 8 KiB 0.89 to 0.94; on 128 MiB, rows of 32 KiB 0.89 to 0.93. A step of Adam to 192 MiB 0.74 to 0.80.
inline constexpr std::int64_t least_streamed_row_bytes = 4096;

// ---- transport ----

/// The number of spins of a waiting thread before it yields the processor, about 20 microseconds, and the number of
/// yields before it sleeps.
inline constexpr int spins_of_waiting_thread = 1000, yields_of_waiting_thread = 100;
/// The fewest operations of a step that the threads of a device share. The elements that a step computes, reads and
/// writes count as operations. To begin and end a shared step takes 1 to 2 microseconds; gelu on 256 x 256 floats takes
/// 27 us instead of 50 (bench/threads_per_device.cpp).
inline constexpr std::int64_t least_shared_work = 64 * 1024;

/// The block size for reducing the buffers of several members together. A block stays in the first-level cache next to
/// a source.
inline constexpr std::int64_t reduce_block_bytes = 4096;
/// Shards up to this size are sent through the shared memory of a node, box by box, instead of packed messages. At 64
/// MiB, messages are faster.
inline constexpr std::int64_t largest_shown_shard_bytes = std::int64_t{4} << 20;

/// An all_reduce of at least this size within a node uses MPI messages, unless the node has more processes than cores.
/// With 3, 4 or 8 processes on 2 cores, messages take twice as long as a node_window.
inline constexpr std::int64_t all_reduce_by_messages_bytes = std::int64_t{2} << 20;

}  // namespace gspmd::detail
