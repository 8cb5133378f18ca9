#pragma once

#include <ccl/types/word.hpp>

namespace ccl {

/// Some elements of the user's buffers: where they lie in the input and in the output.
struct Part {
  Index in = 0, out = 0;  // elements from the buffer's begin
  Index count = 0;        // elements
};

/// How a message lies in the user's buffers, in elements.
struct Layout {
  Index count = 0;       // of the whole message if `split`, else of one share
  Index in_stride = 0;   // from one share to the next, in the input; unused if `split`
  Index out_stride = 0;  // the same in the output
  bool split = false;    // shares are cut from the message; else each share is `count` long
};

/// One channel's part of a message, cut into rounds of one chunk for each share. All ranks compute
/// the same rounds, so that the two ends of a wire agree on every size without a word.
class Chunks {
 public:
  static constexpr Index max_elements = Index{1} << 30;  // of a chunk
  /// `chunk`: elements of a chunk, at most. `grain`: chunks and channels begin at multiples of it.
  CCL_HD constexpr Chunks(const Layout& layout, int shares, int channel, int channels, Index chunk,
                          Index grain)
      : layout_{layout}, shares_{shares}, grain_{grain}, max_chunk_{int(chunk)} {
    const Index part = round_up(div_up<Index>(layout.count, channels), grain);
    const Index begin = part * channel;
    end_ = begin + part < layout.count ? begin + part : layout.count;
    round_ = begin < end_ ? begin : end_;
  }

  /// On to the next round. False when the channel's part is done.
  CCL_HD constexpr bool next() {
    round_ += layout_.split ? Index{chunk_} * shares_ : Index{chunk_};
    if (round_ >= end_) return false;
    const Index left = end_ - round_;
    const Index fair = layout_.split ? div_up<Index>(left, shares_) : left;
    chunk_ = fair < max_chunk_ ? int(round_up(fair, grain_)) : max_chunk_;
    return true;
  }
  CCL_HD constexpr Part share(int s) const {
    if (layout_.split) {
      const Index at = round_ + Index{s} * chunk_;
      return {at, at, clamp(end_ - at)};
    }
    return {s * layout_.in_stride + round_, s * layout_.out_stride + round_, clamp(end_ - round_)};
  }
  /// The whole round, where shares do not matter.
  CCL_HD constexpr Part all() const { return share(0); }

 private:
  CCL_HD static constexpr Index round_up(Index n, Index grain) {
    return div_up<Index>(n, grain) * grain;
  }
  CCL_HD constexpr Index clamp(Index left) const {
    return left < 0 ? 0 : left < chunk_ ? left : Index{chunk_};
  }

  // Registers: kernels hold this all along.
  Layout layout_;
  int shares_;
  Index grain_;
  int max_chunk_;
  int chunk_ = 0;  // of the present round; none before the first
  Index end_ = 0, round_ = 0;
};

}  // namespace ccl
