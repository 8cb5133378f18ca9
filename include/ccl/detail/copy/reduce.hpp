#pragma once

#include <ccl/detail/base/min_max.hpp>
#include <ccl/detail/copy/registry.hpp>
#include <ccl/detail/copy/sequence.hpp>
#include <ccl/detail/copy/work.hpp>
#include <ccl/detail/launch/call_arguments.hpp>
#include <ccl/detail/launch/errors.hpp>
#include <ccl/detail/launch/launch.hpp>
#include <ccl/detail/runtime/connections.hpp>
#include <ccl/types/operations.hpp>

#include <memory>
#include <utility>

namespace ccl::detail {

/// Returns the number of elements whose multiples begin at multiples of 128 bytes.
constexpr Index copy_grain(Index element_bytes) {
  Index grain = 1;
  while (grain < 128 && grain * element_bytes % 128 != 0) grain *= 2;
  return grain;
}

/// AllReduce and ReduceScatter by copies. Every rank has a share of each chunk. All ranks push
/// their pieces of the share into its scratch, it reduces them, and for AllReduce the others pull
/// the result. No rank writes to the user's buffers of another.
template <class Op, class Algo, class Proto, class R>
class ReduceByCopies {
  using Reducing = CopyReduceKernels<Op, Algo, Proto, R>;
  static constexpr bool all = is_one_of<Op, AllReduce>;
  static constexpr Index size = sizeof(typename R::Type);

 public:
  ReduceByCopies(CopySequence<Algo>& sequence, const R& reduction, const void* input, void* output,
                 const Layout& layout)
      : sequence_{sequence},
        reduction_{reduction},
        in_{static_cast<const char*>(input)},
        out_{static_cast<char*>(output)},
        layout_{layout},
        me_{sequence.me()},
        ranks_{sequence.ranks()} {
    constexpr Index grain = copy_grain(size);
    const Index most = sequence.place_bytes() / size / grain * grain;
    const Index whole = all ? div_up<Index>(layout.count, ranks_) : layout.count;
    chunks_ = div_up(whole, most);
    each_ = min_of(most, div_up(div_up(whole, chunks_), grain) * grain);
  }

  /// Lays out all chunks, with one barrier for each. At the barrier of a chunk, its pieces have
  /// arrived and the previous chunk is reduced. The pulls of the previous chunk and the pushes of
  /// the next run beside the reduction of this one.
  void lay_out() {
    push(0);
    for (Index k = 0; k <= chunks_; ++k) {
      sequence_.barrier();
      if (k < chunks_) {
        sequence_.fork();
        reduce(k);
      }
      if (all && k > 0) pull(k - 1);
      if (k + 1 < chunks_) push(k + 1);
      sequence_.join();
    }
  }

 private:
  struct Piece {
    Index in, out, count;  // elements
  };
  Piece piece(int rank, Index chunk) const {
    const Index at = all ? (chunk * ranks_ + rank) * each_ : chunk * each_;
    const Index count = max_of<Index>(0, min_of(layout_.count - at, each_));
    return {all ? at : rank * layout_.in_stride + at, at, count};
  }
  void push(Index chunk) {
    for (int k = 1; k < ranks_; ++k) {
      const int p = sequence_.ahead(k);
      const Piece theirs = piece(p, chunk);
      sequence_.copy(sequence_.place(p, chunk, me_), in_ + theirs.in * size, theirs.count * size);
    }
  }
  void reduce(Index chunk) {
    const Piece mine = piece(me_, chunk);
    if (mine.count == 0 || !sequence_.done()) return;
    CopyReduction<R> work{reduction_};
    for (int p = 0; p < ranks_; ++p) work.piece[p] = sequence_.place(me_, chunk, p);
    work.piece[me_] = in_ + mine.in * size;
    work.ranks = ranks_;
    work.output = out_ + mine.out * size;
    if (all) work.also = sequence_.place(me_, chunk, me_);
    work.count = mine.count;
    sequence_.check(Reducing::launch(work, sequence_.on_stream()));
  }
  void pull(Index chunk) {
    for (int k = 1; k < ranks_; ++k) {
      const int p = sequence_.ahead(k);
      const Piece theirs = piece(p, chunk);
      sequence_.copy(out_ + theirs.out * size, sequence_.place(p, chunk, p), theirs.count * size);
    }
  }

  CopySequence<Algo>& sequence_;
  const R& reduction_;
  const char* const in_;
  char* const out_;
  const Layout& layout_;
  const int me_, ranks_;
  Index chunks_ = 0, each_ = 0;  // elements of a piece
};

template <class Op, class Algo, class Proto, class R>
Result<void> reduce_by_copies(const std::shared_ptr<Connections>& owner, const CallInfo& info,
                              const CallArguments<R>& given, Stream stream) {
  using Reducing = CopyReduceKernels<Op, Algo, Proto, R>;
  register_kernels<CopyKernels<Algo>>();
  register_kernels<Reducing>();
  Connections& connections = *owner;
  const Layout& layout = given.layout;
  if (Reducing::launch == nullptr || CopyKernels<Algo>::sync == nullptr) {
    return fail(no_device_code(connections));
  }
  if (layout.count == 0) return check_ready(connections.comm());
  Launch::Lock lock{connections.calls().mutex};
  constexpr Index size = sizeof(typename R::Type);
  if (CopySequence<Algo>::place_bytes(connections) < copy_grain(size) * size) {
    return fail(scratch_too_small(connections));
  }
  const auto lay_out = [&](CopySequence<Algo>& sequence) {
    ReduceByCopies<Op, Algo, Proto, R>{sequence, given.reduction, given.input, given.output, layout}
        .lay_out();
  };
  return launch_copies<Algo>(owner, info, stream, std::move(lock), nullptr, lay_out);
}

}  // namespace ccl::detail
