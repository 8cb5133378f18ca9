#pragma once

#include <ccl/element/element.hpp>
#include <ccl/types/macros.hpp>
#include <ccl/types/word.hpp>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Part of a tile that exists.
enum class Fill {
  full,   // all of it: no branch separates the loads of one tile from those of the next
  cells,  // whole accesses of each lane: absent loads are predicated off, without a branch
  any     // any number of elements
};

/// View of the user's buffers as cells of elements. `in` and `out` may be the same memory.
///
/// `Align`: known alignment of every run of cells in bytes. It is 16 if base, chunks and counts
/// allow it; else that of the elements, or 4 for smaller elements.
template <class T, int Align>
class UserBuffer {
 public:
  static constexpr int cell_words = Element<T>::words_per_cell;
  static constexpr int per_cell = Element<T>::per_cell;

  CCL_HD UserBuffer(const void* in, void* out)
      : in_{static_cast<const char*>(in)}, out_{static_cast<char*>(out)} {}

  CCL_HD const char* in(Index at) const { return in_ + at * Index{sizeof(T)}; }
  CCL_HD char* out(Index at) const { return out_ + at * Index{sizeof(T)}; }

  /// Loads a lane's cells of the tile whose first element is `at`. The tile has `left` elements,
  /// which may be negative or more than fit. Absent elements read as zero.
  template <Fill How, class Lane, class Count>
  CCL_HD typename Lane::Fragment load(const Lane& lane, Index at, Count left) const {
    typename Lane::Fragment f{};
    const char* const from = in(at) + lane.cell(0) * per_cell * int(sizeof(T));
    const Count there = left - lane.cell(0) * per_cell;
    CCL_UNROLL for (int c = 0; c < Lane::cells; c += Lane::stride) {
      const int first = (lane.cell(c) - lane.cell(0)) * per_cell;
      const int offset = first * int(sizeof(T));
      const bool here = How == Fill::full || first + Lane::stride * per_cell <= there;
      if (whole() && (How != Fill::any || (many<Lane> && here))) {
        if (lane.contains(c) && here)
          read<Lane::stride * cell_words>(from + offset, &f.word[c * cell_words]);
      } else {
        CCL_UNROLL for (int i = 0; i < Lane::stride * per_cell; ++i) {
          if (!lane.contains(c + i / per_cell) || (How != Fill::full && first + i >= there))
            continue;
          detail::Slot<T> x;
          __builtin_memcpy(&x.value, aligned<element_align>(from + offset + i * int(sizeof(T))),
                           sizeof(T));
          Element<T>::put(&f.word[(c + i / per_cell) * cell_words], i % per_cell, x.value);
        }
      }
    }
    return f;
  }
  template <Fill How, class Lane, class Count>
  CCL_HD void store(const Lane& lane, Index at, Count left,
                    const typename Lane::Fragment& f) const {
    char* const to = out(at) + lane.cell(0) * per_cell * int(sizeof(T));
    const Count there = left - lane.cell(0) * per_cell;
    CCL_UNROLL for (int c = 0; c < Lane::cells; c += Lane::stride) {
      const int first = (lane.cell(c) - lane.cell(0)) * per_cell;
      const int offset = first * int(sizeof(T));
      const bool here = How == Fill::full || first + Lane::stride * per_cell <= there;
      if (whole() && (How != Fill::any || (many<Lane> && here))) {
        if (lane.contains(c) && here)
          write<Lane::stride * cell_words>(to + offset, &f.word[c * cell_words]);
      } else {
        CCL_UNROLL for (int i = 0; i < Lane::stride * per_cell; ++i) {
          if (!lane.contains(c + i / per_cell) || (How != Fill::full && first + i >= there))
            continue;
          const T x = Element<T>::get(&f.word[(c + i / per_cell) * cell_words], i % per_cell);
          __builtin_memcpy(aligned<element_align>(to + offset + i * int(sizeof(T))), &x, sizeof(T));
        }
      }
    }
  }

 private:
  // Alignment of every element, in bytes.
  static constexpr int element_align = (Align | int(sizeof(T))) & -(Align | int(sizeof(T)));
  static constexpr int run_align = Align & -Align;
  /// Bytes that a GPU's lane moves at once, for `Words` adjacent words.
  template <int Words>
  static constexpr int access = [] {
    constexpr int most = Words % 2 == 0 ? 16 : 8;
    return run_align >= most ? most : run_align >= 8 ? 8 : 4;
  }();

  /// False for one or two elements, whose loads are predicated without a branch.
  template <class Lane>
  static constexpr bool many = Lane::stride * per_cell > 2;
  /// True if whole cells are moved as words or half words. A CPU takes any address.
  CCL_HD static constexpr bool whole() {
    if constexpr (!Element<T>::packed) return false;
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (return run_align >= 4;), (return true;))
  }
  /// The user's memory may alias, so accesses are copies. One of known alignment is one access.
  template <int Bytes, class P>
  CCL_HD static P* aligned(P* at) {
    return static_cast<P*>(__builtin_assume_aligned(at, Bytes));
  }
  template <int Words>
  CCL_HD static void read(const char* from, Word* to) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (read_units<Words>(from, to);),
                      (__builtin_memcpy(to, from, 8 * Words);))
  }
  template <int Words>
  CCL_HD static void write(char* to, const Word* from) {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (write_units<Words>(to, from);),
                      (__builtin_memcpy(to, from, 8 * Words);))
  }
  template <int Words>
  CCL_HD static void read_units(const char* from, Word* to) {
    if constexpr (access<Words> == 4) {
      CCL_UNROLL for (int w = 0; w < Words; ++w) {
        unsigned half[2];
        CCL_UNROLL for (int h = 0; h < 2; ++h) {
          __builtin_memcpy(&half[h], aligned<4>(from + 8 * w + 4 * h), 4);
        }
        to[w] = half[0] | Word{half[1]} << 32;
      }
    } else {
      constexpr int words = access<Words> / 8;
      CCL_UNROLL for (int w = 0; w < Words; w += words) {
        __builtin_memcpy(to + w, aligned<8 * words>(from + 8 * w), 8 * words);
      }
    }
  }
  template <int Words>
  CCL_HD static void write_units(char* to, const Word* from) {
    if constexpr (access<Words> == 4) {
      CCL_UNROLL for (int w = 0; w < Words; ++w) {
        const unsigned half[2] = {unsigned(from[w]), unsigned(from[w] >> 32)};
        CCL_UNROLL for (int h = 0; h < 2; ++h) {
          __builtin_memcpy(aligned<4>(to + 8 * w + 4 * h), &half[h], 4);
        }
      }
    } else {
      constexpr int words = access<Words> / 8;
      CCL_UNROLL for (int w = 0; w < Words; w += words) {
        __builtin_memcpy(aligned<8 * words>(to + 8 * w), from + w, 8 * words);
      }
    }
  }

  const char* in_;
  char* out_;
};

/// `Align` of kernels that serve buffers of any alignment.
inline constexpr int any_align = 0;

/// View whose lanes test the addresses that they access. Whole aligned cells are accessed as with
/// an alignment of 16. All other accesses are functions that are not inlined: all kernels for `T`
/// share them.
template <class T>
class UserBuffer<T, any_align> {
  using Aligned = UserBuffer<T, 16>;
  static constexpr int min_align = alignof(T) < 16 ? int(alignof(T)) : 16;

 public:
  static constexpr int cell_words = Aligned::cell_words;
  static constexpr int per_cell = Aligned::per_cell;

  CCL_HD UserBuffer(const void* in, void* out)
      : in_{static_cast<const char*>(in)}, out_{static_cast<char*>(out)} {}

  CCL_HD const char* in(Index at) const { return in_ + at * Index{sizeof(T)}; }
  CCL_HD char* out(Index at) const { return out_ + at * Index{sizeof(T)}; }

  /// See `UserBuffer`.
  template <Fill, class Lane, class Count>
  CCL_HD typename Lane::Fragment load(const Lane& lane, Index at, Count left) const {
    if (left <= Count(lane.cell(0) * per_cell)) return {};
    if (is_wide(lane, in(at), left)) {
      return Aligned{in_, nullptr}.template load<Fill::cells>(lane, at, left);
    }
    return load_apart(lane, in_, at, left);
  }
  template <Fill, class Lane, class Count>
  CCL_HD void store(const Lane& lane, Index at, Count left,
                    const typename Lane::Fragment& f) const {
    if (left <= Count(lane.cell(0) * per_cell)) return;
    if (is_wide(lane, out(at), left)) {
      Aligned{nullptr, out_}.template store<Fill::cells>(lane, at, left, f);
    } else {
      store_apart(lane, out_, at, left, f);
    }
  }

 private:
  /// True if each access of the lane is aligned, and either all of its elements exist or none.
  template <class Lane, class Count>
  CCL_HD static bool is_wide(const Lane& lane, const char* tile, Count left) {
    if constexpr (!Element<T>::packed) return false;
    constexpr int run = Lane::stride * per_cell;
    constexpr unsigned most = Lane::stride * cell_words % 2 == 0 ? 16 : 8;
    const auto base = unsigned(reinterpret_cast<cuda::std::uintptr_t>(tile));
    unsigned bits = 0;
    bool whole = true;
    CCL_UNROLL for (int c = 0; c < Lane::cells; c += Lane::stride) {
      const int first = lane.cell(c) * per_cell;
      if (!lane.contains(c)) continue;
      bits |= base + unsigned(first) * unsigned(sizeof(T));
      whole = whole && (first + run <= left || first >= left);
    }
    return whole && bits % most == 0;
  }
  template <class Lane, class Count>
  CCL_HD_APART static typename Lane::Fragment load_apart(Lane lane, const char* in, Index at,
                                                         Count left) {
    if constexpr (min_align < 4) {
      if (are_words(in, at)) {
        return UserBuffer<T, 4>{in, nullptr}.template load<Fill::any>(lane, at, left);
      }
    }
    return UserBuffer<T, min_align>{in, nullptr}.template load<Fill::any>(lane, at, left);
  }
  template <class Lane, class Count>
  CCL_HD_APART static void store_apart(Lane lane, char* out, Index at, Count left,
                                       typename Lane::Fragment f) {
    if constexpr (min_align < 4) {
      if (are_words(out, at)) {
        UserBuffer<T, 4>{nullptr, out}.template store<Fill::any>(lane, at, left, f);
        return;
      }
    }
    UserBuffer<T, min_align>{nullptr, out}.template store<Fill::any>(lane, at, left, f);
  }
  /// True if cells from element `at` on are aligned as words of 4 bytes. Cells are 8 bytes long, or
  /// a multiple.
  CCL_HD static bool are_words(const char* base, Index at) {
    return (reinterpret_cast<cuda::std::uintptr_t>(base) + Word(at) * sizeof(T)) % 4 == 0;
  }

  const char* in_;
  char* out_;
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
