// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "gspmd/detail/support/language.hpp"

/// The numbers that change how fast plans and kernels are and nothing else, each with what chose it. On other machines others may be
/// better; results do not depend on them, but for the last bits of sums (parts of sums, ir/sum_parts.hpp, are no tuning).
namespace gspmd::detail {

// ---- plans ----

/// The network by which a plan is chosen where the user describes none (on_network.hpp): a device sends 31.25 GB/s (32 picoseconds a byte)
/// to whomever it likes, computes 10^12 flops/s, and a message costs what its bytes cost; what more than `untapered_devices` all trade with each
/// other takes longer. So plans are those of fewest bytes, whatever the size of the tensors, but for all_to_alls over many devices and for large
/// products: between gathering their operands on every device and adding partial ones up. With a
/// microsecond for each message too, plans of small programs gathered what is reduced, up to 128 times the bytes, because an all_reduce has
/// twice the messages of an all_gather: softmax along a split dim sent 19,200 bytes for 384, in as many collectives.
inline constexpr std::int64_t default_picoseconds_per_kib = 32 * 1024;
/// So many devices trade with each other at the full rate of a tapered switch; more share the links (collective_time.hpp).
inline constexpr std::int64_t untapered_devices = 16;
inline constexpr std::int64_t default_picoseconds_per_1024_flops = 1024;
/// Added to each extent of a product (rows, columns, terms) in its estimated time: small extents do not fill vectors and tiles,
/// and leave less to overlap with.
/// With more than 32, products with a vector would take longer than their bytes.
inline constexpr std::int64_t added_to_extents_of_product = 16;
/// The memory of a device moves a byte in the time of so many flops, where nobody states more: an A100 does 13, sockets with AVX-512 about 10;
/// with units for products of 16 bits it is 140 to 300.
inline constexpr std::int64_t default_flops_per_byte_of_memory = 10;
/// To begin an operator takes a device a microsecond: what it computes in it costs nothing more.
inline constexpr std::int64_t picoseconds_to_begin = std::int64_t{1} << 20;
/// A collective takes about 20 microseconds to begin, on threads, whatever it sends. The default network does not know it.
inline constexpr std::int64_t picoseconds_to_begin_collective = std::int64_t{20} << 20;
/// An operator that sends nothing, but whose work all devices along an axis repeat, is shared out if it takes this long, 67 microseconds:
/// the collective that this needs somewhere takes about 20 to begin, whatever it sends.
inline constexpr std::int64_t least_picoseconds_of_shared_work = std::int64_t{1} << 26;

/// Programs of up to so many values are planned by several rules (choose/whole_plans.hpp), if another plan may save the time of sending
/// 32 KiB, a microsecond: as long as a message takes to begin. So are plans that are to be searched (choose/plan_search.hpp). What is tried
/// is what this part of the time, at least, is spent around; and as long as so many choices for operators are made: a
/// Transformer layer with its gradient takes clang++ 10 s more with 256 of them, and sends no byte less; of 5,994 small programs 26 are
/// more than 5 % off the best plan with 64, as with 48; with 40 it is 29, with 32 it is 32. A training step of the example moe on 8 devices
/// is planned alike with 0 to 1,024.
inline constexpr std::int64_t least_picoseconds_of_search = std::int64_t{1} << 20;
/// Where every device could do all of the work, that is tried from the time of sending 512 KiB on, 17 microseconds: a loop over a grid of 40 x
/// 30, which a test has, is planned as one over a large grid.
inline constexpr std::int64_t least_picoseconds_of_replication = std::int64_t{1} << 24;
inline constexpr int most_values_for_alternatives = 32;
inline constexpr int least_part_of_search = 16;
inline constexpr int most_choices_of_search = 64;
inline constexpr int most_values_in_order_of_search = 32;

/// A value that is the same in all trips of a loop is computed in every one if that reads so many bytes less, on all devices together: less
/// stays in caches.
inline constexpr std::int64_t least_bytes_of_kept_invariants = std::int64_t{1} << 20;

/// How much one message may join. To send one at all takes about 20 us, and what is joined is copied once more on its way. By MPI's
/// messages between two processes of a node, 2 to 16 at a time, in parts of the time that they take apart: values of up to 8 KiB gain
/// (16 of 2 KiB 0.45 to 0.53), all_gathers of 16 KiB take 1.06 (two) to 1.55 (four), of 32 KiB 1.4 to 1.7, all_reduces lose from 64 KiB on.
inline constexpr std::int64_t most_joined_bytes = 8 * 1024;          // of one value
inline constexpr std::int64_t most_joined_bytes_in_all = 64 * 1024;  // of all values in one message

/// So many terms, or results that lie one after the other, a contraction takes at once: with fewer, computing the products first was
/// faster (256 x 256 and 65536 x 16 floats, sums of rows and of columns).
inline constexpr std::int64_t least_terms_of_contraction = 64;

/// While an exchange of margins is under way, what of a loop needs none of them is computed, if that is so much: less takes no longer than
/// it costs to compute the rim apart.
inline constexpr std::int64_t least_overlapped_elems = 32 * 1024;
/// Where margins lie along another dim than the first, so much: the rim of rows then is found in the cache no more, and costs more the
/// more rows were computed before it.
inline constexpr std::int64_t most_overlapped_rows_elems = 128 * 1024;

/// The most sweeps on one exchange that the time of a network chooses (passes/ghost/ghost_zones.hpp): with more, a message costs less than a
/// fiftieth of what it cost in every sweep.
inline constexpr std::int64_t most_ghost_sweeps = 48;

/// Steps that go through the same rows go through them by blocks of so many bytes, of all that they read and make, if the whole is
/// larger than the second cache; rows longer than `most_row_bytes` do not stay in it.
inline constexpr std::int64_t blocked_bytes = 128 * 1024;
inline constexpr std::int64_t least_blocked_bytes = std::int64_t{1} << 20;
inline constexpr std::int64_t most_row_bytes = 512 * 1024;
/// So much, which is more than the first cache holds, is one block: compiled programs go through its rows one by one. Of rows of a few
/// elements the loops over all are faster.
inline constexpr std::int64_t least_row_loop_bytes = 128 * 1024;
/// Values of so many bytes, which fill the first cache, are computed again where that takes no more than to read them.
inline constexpr std::int64_t least_recomputed_bytes = 64 * 1024;
/// So many rows of it go through each step together, if what a step reads and makes of them is no more. Rows that come from farther away than the
/// second cache are computed while the next ones come: of these less.
inline constexpr std::int64_t most_rows_together = 4, rows_together_bytes = 32 * 1024, far_rows_together_bytes = 4 * 1024;

// ---- kernels ----

/// Of loops of fewer rows the threads of a device compute parts of rows, else whole rows: with 16, one of four threads has a fourth more
/// than another at most.
inline constexpr std::int64_t least_rows_of_parts = 16;
/// Rows of so many elements together are computed piece by piece, before the next ones, where there are too many pieces to compute one row
/// after the other: they are found in the cache again. The heat equation on 256^3 doubles took 1.20 to 1.24 of by hand with 16384, and 1.05 with
/// 4096 and 2048.
inline constexpr std::int64_t row_piece_elems = 4096;
/// Rows shorter than this are loops of constant length. Of longer ones only what is left over by whole steps of 64 elements
/// (for_each_index) is constant.
inline constexpr std::int64_t constant_row_elems = 256;
/// A single row that is reduced is compiled for any length from so many elements on: the fewest that are reduced while they are computed,
/// 16 vectors of 8 floats or doubles (computed_elements::runs).
inline constexpr std::int64_t least_accumulated_elems = 128;
/// Rows of up to so many elements are computed whole before they are reduced.
inline constexpr std::int64_t fused_block_elems = 1024;
/// The most elements per block of a loop that is interpreted: long enough that the dispatch does not show, short enough that a dozen
/// blocks stay in the first cache.
inline constexpr std::int64_t interpreted_block_elems = 512;
/// The same where one kernel computes everything from what lies in memory: nothing is to stay in the cache between kernels.
inline constexpr std::int64_t single_kernel_block_elems = 4096;
/// Blocks of it that are filled once per run and then stay in the cache.
inline constexpr int most_lasting_blocks = 16;
/// Lines of so many elements are sorted by insertion: to count the digits of fewer takes longer.
inline constexpr std::int64_t most_inserted_elems = 64;
/// A piece of the result of a reduction, of dims or windows, that stays in the first cache.
inline constexpr std::int64_t reduced_piece_bytes = 8192;
/// The bytes that a loop computes before they are reduced: so many are found in the first cache then.
inline constexpr std::int64_t computed_part_bytes = 16 * 1024;
/// The multiplications of a product up to which the call of a library costs more than the product; and, in squares of a vector's lanes, of one
/// whose columns lie one after the other (kernels/small_product.hpp). Over the time of an OpenBLAS call each, with 64-byte vectors: floats
/// 4x4x4 0.3, 8x8x8 0.5, 16x16x16 0.85; doubles 0.5, 0.95, and 1.3, where calls take 1.08.
inline constexpr std::int64_t worth_a_gemm_call = 512;
inline constexpr std::int64_t most_small_product_in_vectors = 16;
/// The terms of a product of narrow elements that are made wider at a time: bf16 [2048,2048] by [2048,2048] in 115 ms, where copies of
/// whole operands took 131. And the elements of both operands of one of many products from which on that is done.
inline constexpr std::int64_t narrow_panel_terms = 512;
inline constexpr std::int64_t worth_panels_elems = 64;
/// The multiplications of a convolution from which on oneDNN is called, where it is there.
inline constexpr std::int64_t worth_a_convolution_call = 1 << 16;
/// From this size on, a buffer that is only written is better written around the caches: at 16 MiB it costs 5 % or gains
/// nothing, at 64 MiB it gains 15-30 % (bench/collectives.cpp).
inline constexpr std::int64_t stream_from_bytes = std::int64_t{24} << 20;
/// So are results of a loop, in all, if its rows are so long. Over the time of plain stores, on one thread: the heat equation on 256^3 doubles, rows of
/// 2 KiB, 1.1 to 1.3; Jacobi's iteration on 64 MiB with rows of 4 KiB 1.00, of 8 KiB 0.89 to 0.94, on 128 MiB with rows of 32 KiB 0.89 to 0.93; Adam's
/// step to 192 MiB 0.74 to 0.80.
inline constexpr std::int64_t least_streamed_row_bytes = 4096;

// ---- transport ----

/// How often a thread of a device that waits for work looks, some 20 microseconds of it, before it gives the processor away, and how often it
/// does that before it sleeps.
inline constexpr int spins_of_waiting_thread = 1000, yields_of_waiting_thread = 100;
/// A step is shared by the threads of a device from so many operations on, counted as what it computes, reads and writes by element: to begin
/// and to end a shared step takes 1 to 2 microseconds, of gelu on 256 x 256 floats (bench/threads_per_device.cpp: 27 us for 50).
inline constexpr std::int64_t least_shared_work = 64 * 1024;

/// The block in which the buffers of several members are reduced in turns: small enough to stay in the first-level cache next to a source.
inline constexpr std::int64_t reduce_block_bytes = 4096;
/// Shards up to this size go through memory that a node shares, box by box, where messages would be packed. At 64 MiB messages are faster.
inline constexpr std::int64_t largest_shown_shard_bytes = std::int64_t{4} << 20;

/// From this size on an all_reduce inside a node goes by MPI's messages, unless there are more processes than cores: with 3, 4 or
/// 8 on 2 cores messages take twice as long as a node_window.
inline constexpr std::int64_t all_reduce_by_messages_bytes = std::int64_t{2} << 20;

}  // namespace gspmd::detail
