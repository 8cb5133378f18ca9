#pragma once

#include <ccl/detail/lanes/peer_view.hpp>
#include <ccl/detail/lanes/spin_wait.hpp>
#include <ccl/element/element.hpp>
#include <ccl/types/macros.hpp>

#include <cuda/std/concepts>
#include <cuda/std/type_traits>

CCL_ANY_SPACE_BEGIN

namespace ccl::detail {

/// Arguments of one launch over the rows of a matrix. Trivially copyable; everything it points to
/// must outlive the launch. Rows are adjacent, without gaps.
template <class P, class E>
struct RowWork {
  RowWork(const P& before, const E& after) : prologue{before}, epilogue{after} {}

  PeerView peers;
  Epoch epoch;
  const typename P::Element* input = nullptr;  // row `first_row`, aligned to 16 bytes
  Index first_row = 0;                         // number of the row for the epilogue
  int rows = 0;
  int length = 0;    // elements of a row, a multiple of 8
  int channels = 1;  // groups of the launch
  int blocks = 1;    // see `HasBlockEpilogue`; one block finishes a row
  P prologue;
  E epilogue;
  AbortWatch watch;
};

/// N adjacent elements of a row, as they lie in memory.
template <class T, int N>
struct RowRun {
  static constexpr int bytes = N * int(sizeof(T));
  static constexpr int per_word = 8 / int(sizeof(T));
  static_assert(bytes % 8 == 0 && Element<T>::packed && Element<T>::words_per_cell == 1);
  static_assert(cuda::std::same_as<accumulate_t<T>, float>,
                "ccl: rows are of elements that are reduced in float: float, bf16, half or fp8");
  Word word[bytes / 8];

  CCL_HD static RowRun load(const T* at) {
    RowRun run;
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (run.read(reinterpret_cast<const Access*>(at));),
                      (__builtin_memcpy(run.word, at, bytes);))
    return run;
  }
  CCL_HD void store(T* at) const {
    NV_IF_ELSE_TARGET(NV_IS_DEVICE, (write(reinterpret_cast<Access*>(at));),
                      (__builtin_memcpy(at, word, bytes);))
  }
  /// Returns the sums of elements, each rounded once. The result equals that of sums in float.
  CCL_HD RowRun plus(const RowRun& other) const {
    RowRun sum;
    if constexpr (requires { Element<T>::add_packed(Word{}, Word{}); }) {
      CCL_UNROLL for (int w = 0; w < bytes / 8; ++w) {
        sum.word[w] = Element<T>::add_packed(word[w], other.word[w]);
      }
    } else {
      float a[N], b[N];
      unpack(a);
      other.unpack(b);
      CCL_UNROLL for (int i = 0; i < N; ++i) a[i] += b[i];
      sum = pack(a);
    }
    return sum;
  }
  CCL_HD float operator[](int i) const {
    return Element<T>::widen(Element<T>::get(&word[i / per_word], i % per_word));
  }
  CCL_HD void unpack(float* values) const {
    CCL_UNROLL for (int w = 0; w < bytes / 8; ++w) {
      if constexpr (requires { Element<T>::unpack(word, values); }) {
        Element<T>::unpack(&word[w], values + w * per_word);
      } else {
        CCL_UNROLL for (int i = 0; i < per_word; ++i) {
          values[w * per_word + i] = Element<T>::widen(Element<T>::get(&word[w], i));
        }
      }
    }
  }
  /// Rounds to nearest, ties to even.
  CCL_HD static RowRun pack(const float* values) {
    RowRun run;
    CCL_UNROLL for (int w = 0; w < bytes / 8; ++w) {
      if constexpr (requires { Element<T>::pack(run.word, values); }) {
        Element<T>::pack(&run.word[w], values + w * per_word);
      } else {
        run.word[w] = 0;
        CCL_UNROLL for (int i = 0; i < per_word; ++i) {
          Element<T>::put(&run.word[w], i, Element<T>::narrow(values[w * per_word + i]));
        }
      }
    }
    return run;
  }

 private:
  // Access unit of a GPU. From a memcpy of known alignment, nvcc 13 makes one access for each byte
  // here.
  using Access = cuda::std::conditional_t<bytes % 16 == 0, Packet, Word>;
  CCL_HD void read(const Access* at) {
    CCL_UNROLL for (int i = 0; i < bytes / int(sizeof(Access)); ++i) {
      const Access a = at[i];
      if constexpr (sizeof(Access) == 16) {
        word[2 * i] = a.word[0];
        word[2 * i + 1] = a.word[1];
      } else {
        word[i] = a;
      }
    }
  }
  CCL_HD void write(Access* at) const {
    CCL_UNROLL for (int i = 0; i < bytes / int(sizeof(Access)); ++i) {
      if constexpr (sizeof(Access) == 16) {
        at[i] = {{word[2 * i], word[2 * i + 1]}};
      } else {
        at[i] = word[i];
      }
    }
  }
};

/// True if the matrices can be accessed in units of 16 bytes.
template <class... Ts>
bool rows_aligned(const Ts*... matrices) {
  return ((reinterpret_cast<cuda::std::uintptr_t>(matrices) % 16 == 0) && ...);
}

/// One lane's part of a row, as an epilogue receives it: `pieces` runs of `per_piece` elements.
/// Some pieces may be absent. All lanes of the row's block run the epilogue together.
template <class Group, class Lane, int PerPiece, int DataCells, int Tiles>
class RowPart {
 public:
  static constexpr int pieces = Tiles * Lane::cells;
  static constexpr int per_piece = PerPiece;
  template <class T>
  using Run = RowRun<T, per_piece>;

  CCL_HD RowPart(Group group, const Lane& lane, Index index, int length, int warp, int warps)
      : group_{group},
        lane_{lane},
        index_{index},
        length_{length},
        warp_{warp},
        warps_{warps},
        first_{index * length + column(0)} {}

  CCL_HD Index number() const { return index_; }  // row number in the matrix
  CCL_HD int length() const { return length_; }   // elements
  CCL_HD int column(int p) const {                // column of the piece's first element
    const int tile = warp_ + p / Lane::cells * warps_;
    return (tile * DataCells + lane_.cell(p % Lane::cells)) * per_piece;
  }
  CCL_HD bool contains(int p) const {
    const int c = p % Lane::cells;
    return lane_.contains(c) && lane_.cell(c) < DataCells && column(p) < length_;
  }
  /// Reduces `mine` over the whole row. Every lane must make the same calls. All lanes and all
  /// ranks get the same bits.
  CCL_HD float sum(float mine) const { return group_.block_sum(mine); }
  CCL_HD float max(float mine) const { return group_.block_max(mine); }

  /// Loads piece p of this row from a matrix of the same shape. `load_shared` loads it from a
  /// vector that all rows share.
  template <class T>
  CCL_HD Run<T> load(const T* matrix, int p) const {
    return Run<T>::load(matrix + first_ + behind(p));
  }
  template <class T>
  CCL_HD Run<T> load_shared(const T* vector, int p) const {
    return Run<T>::load(vector + column(p));
  }
  template <class T>
  CCL_HD void store(T* matrix, int p, const float* values) const {
    store(matrix, p, Run<T>::pack(values));
  }
  template <class T>
  CCL_HD void store(T* matrix, int p, const Run<T>& run) const {
    run.store(matrix + first_ + behind(p));
  }

  float value[pieces][per_piece];  // the reduced row; undefined in absent pieces

 private:
  /// Returns the number of elements between the first elements of pieces 0 and p.
  CCL_HD int behind(int p) const { return p == 0 ? 0 : column(p) - column(0); }

  Group group_;
  const Lane& lane_;
  Index index_;
  int length_, warp_, warps_;
  Index first_;  // index of the first element of piece 0 in the matrix
};

}  // namespace ccl::detail

CCL_ANY_SPACE_END
