#pragma once

#include <ccl/detail/lanes/collect.hpp>
#include <ccl/detail/wire/ends.hpp>
#include <ccl/detail/wire/format.hpp>
#include <ccl/types/macros.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Moves the tiles of one slice between the user's memory and the slots, through registers.
template <LaneGroup Group, Protocol<Group> Proto, class R, int Align, int MaxIn, int MaxOut>
class TileMover {
  using Format = WireFormat<Group, Proto, R, Align>;
  using Data = typename Format::Data;
  using Lane = typename Format::Lane;
  using Memory = typename Group::Memory;
  using Ends = WireEnds<MaxIn, MaxOut>;
  static constexpr int tile_elements = Format::tile_elements;

 public:
  CCL_HD TileMover(Group group, const Lane& lane, const Data& data, const R& reduction,
                   const Ends& ends, SpinWait<Memory>& spin)
      : group_{group}, lane_{lane}, data_{data}, reduction_{reduction}, ends_{ends}, spin_{spin} {}

  /// Moves n elements. Stores into slots only if `fill` or if packets carry flags.
  template <class Step>
  CCL_HD void move(Step step, Index in_at, Index out_at, int n, bool fill) {
    // Registers: a tree's node holds the ends of four wires, and a tile of each.
    constexpr int batch = MaxIn > 1 || MaxOut > 1 ? 2 : Proto::batch;
    Slots at;
    if (step.recv) {
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
        if (ends_.uses_in(i)) at.from[i] = ends_.in[i].slot(ends_.shape);
      }
    }
    if (step.send) {
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
        if (ends_.uses_out(o)) at.to[o] = ends_.out[o].slot(ends_.shape);
      }
    }
    int left = n;
    if constexpr (Align == any_align && !Proto::carries_flags) {
      // One loop for all tiles, because the buffer tests what exists.
      CCL_ROLL for (; left > 0; left -= batch * tile_elements) {
        move_tiles<batch, Fill::cells>(step, lane_, at, in_at + (n - left), out_at + (n - left),
                                       left, fill);
      }
    } else {
      move_batches<batch>(step, at, in_at, out_at, n, left, fill);
      move_rest<batch>(step, at, in_at, out_at, n, left, fill);
    }
  }

 private:
  /// Slots of the next tile, by wire.
  struct Slots {
    const Packet* from[MaxIn];
    Packet* to[MaxOut];
    CCL_HD void advance(int tiles) {
      CCL_UNROLL for (int i = 0; i < MaxIn; ++i) from[i] += tiles * Lane::tile_packets;
      CCL_UNROLL for (int o = 0; o < MaxOut; ++o) to[o] += tiles * Lane::tile_packets;
    }
  };

  /// Moves full batches of tiles. Both ends of a wire move the same tiles as pairs, whatever their
  /// batches are.
  template <int Batch, class Step>
  CCL_HD void move_batches(Step step, Slots& at, Index in_at, Index out_at, int n, int& left,
                           bool fill) {
    if constexpr (!cuda::std::is_void_v<typename Format::Pair>) {
      const typename Format::Pair pair{group_};
      CCL_ROLL for (; left >= Batch * tile_elements; left -= Batch * tile_elements) {
        move_tiles<Batch / 2, Fill::full>(step, pair, at, in_at + (n - left), out_at + (n - left),
                                          left, fill);
      }
      if (Batch > 2 && left >= 2 * tile_elements) {
        move_tiles<1, Fill::full>(step, pair, at, in_at + (n - left), out_at + (n - left), left,
                                  fill);
        left -= 2 * tile_elements;
      }
    } else {
      CCL_ROLL for (; left >= Batch * tile_elements; left -= Batch * tile_elements) {
        move_tiles<Batch, Fill::full>(step, lane_, at, in_at + (n - left), out_at + (n - left),
                                      left, fill);
      }
    }
  }

  /// Moves the tiles after the last full batch.
  template <int Batch, class Step>
  CCL_HD void move_rest(Step step, Slots& at, Index in_at, Index out_at, int n, int& left,
                        bool fill) {
    if constexpr (!Proto::carries_flags) {
      // One more batch, without the loads of absent cells: tile by tile takes longer.
      constexpr int access = Lane::stride * Data::per_cell;
      if (const int whole = left % access == 0 ? left : left / tile_elements * tile_elements;
          whole > 0) {
        move_tiles<Batch, Fill::cells>(step, lane_, at, in_at + (n - left), out_at + (n - left),
                                       whole, fill);
        left -= whole;
        at.advance(div_up(whole, tile_elements) - Batch);
      }
      if (left > 0) {
        move_tiles<1, Fill::any>(step, lane_, at, in_at + (n - left), out_at + (n - left), left,
                                 fill);
      }
    } else {
      // Fewer tiles than a batch, which need no code of their own.
      CCL_ROLL for (; left > 0; left -= tile_elements) {
        move_tiles<1, Fill::any>(step, lane_, at, in_at + (n - left), out_at + (n - left), left,
                                 fill);
      }
    }
  }

  /// Moves N tiles. All loads of a batch are issued before the first value is used.
  template <int N, Fill How, class Step, class Tile>
  CCL_HD void move_tiles(Step step, const Tile& tile, Slots& at, Index in_at, Index out_at,
                         int left, bool fill) {
    constexpr int elements = Tile::tile_cells * Data::per_cell;
    Fragments<typename Tile::Fragment, N> f;
    if (step.own) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        f.of[n] = data_.template load<How>(tile, in_at + n * elements, left - n * elements);
      }
    }
    if constexpr (may<Step, &StepParts::recv>) {
      if (step.recv) receive_tiles<N, How>(step, tile, at, left, f);
    }
    if constexpr (prepares<R>()) {
      if (!step.recv) {
        CCL_UNROLL for (int n = 0; n < N; ++n) {
          f.of[n] = CellReducer<R, Tile::words>::from_own(reduction_, f.of[n]).result();
        }
      }
    }
    if constexpr (may<Step, &StepParts::send>) {
      if (step.send) send_tiles<N, How>(tile, at, left, fill, f);
    }
    if (step.out) {
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        data_.template store<How>(tile, out_at + n * elements, left - n * elements, f.of[n]);
      }
    }
  }

  /// Takes N tiles of every wire in. Reduces them with `f`, in the order of the wires, or replaces
  /// `f` where the step has no own data.
  template <int N, Fill How, class Step, class Tile>
  CCL_HD void receive_tiles(Step step, const Tile& tile, Slots& at, int left,
                            Fragments<typename Tile::Fragment, N>& f) {
    constexpr int elements = Tile::tile_cells * Data::per_cell;
    Fragments<typename Tile::Fragment, N> got[MaxIn];
    CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
      if (!ends_.uses_in(i)) continue;
      if constexpr (How == Fill::cells) {
        CCL_UNROLL for (int n = 0; n < N; ++n) {
          if (n * elements < left) {
            got[i].of[n] = tile.unpack(tile.load(at.from[i] + n * Tile::tile_packets));
          }
        }
      } else {
        const InEnd& in = ends_.in[i];
        got[i] = collect<N>(tile, at.from[i], in.received + 1, in.peer, spin_);
      }
      at.from[i] += N * Tile::tile_packets;
    }
    CCL_UNROLL for (int n = 0; n < N; ++n) {
      if (!step.own) f.of[n] = got[0].of[n];
      if constexpr (only_finishes<Step>) {
        f.of[n] = CellReducer<R, Tile::words>::from_received(reduction_, f.of[n]).finish();
      }
      if constexpr (reduces<R> && may<Step, &StepParts::own>) {
        if (!step.own) continue;
        auto sum = CellReducer<R, Tile::words>::from_own(reduction_, f.of[n]);
        CCL_UNROLL for (int i = 0; i < MaxIn; ++i) {
          if (ends_.uses_in(i)) sum.add_received(got[i].of[n]);
        }
        f.of[n] = step.post_op ? sum.finish() : sum.result();
      }
    }
  }

  template <int N, Fill How, class Tile>
  CCL_HD void send_tiles(const Tile& tile, Slots& at, int left, bool fill,
                         const Fragments<typename Tile::Fragment, N>& f) {
    constexpr int elements = Tile::tile_cells * Data::per_cell;
    const int first = tile.cell(0) * Data::per_cell;
    // After a failed wait the registers hold no data, so the packets carry the flag of the step
    // before. All lanes that share a flag fail together, or none: see `collect`.
    const Word real = !spin_.failed();
    CCL_UNROLL for (int o = 0; o < MaxOut; ++o) {
      if (!ends_.uses_out(o)) continue;
      CCL_UNROLL for (int n = 0; n < N; ++n) {
        // Without flags, no lane waits for absent elements.
        const bool exists = How == Fill::full || first + n * elements < left;
        if (!Proto::carries_flags && !(fill && exists)) continue;
        tile.store(at.to[o] + n * Tile::tile_packets, f.of[n], ends_.out[o].sent + real);
      }
      at.to[o] += N * Tile::tile_packets;
    }
  }

  Group group_;
  const Lane& lane_;
  const Data& data_;
  const R& reduction_;
  const Ends& ends_;
  SpinWait<Memory>& spin_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
