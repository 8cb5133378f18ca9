#pragma once

#include <array>

namespace ccl::test {

/// Rows of levels such that every pair of levels of two factors, unless forbidden, is in some row.
template <int Factors>
struct CoveringArray {
  static constexpr int max_rows = 400;
  using Row = std::array<int, Factors>;
  std::array<Row, max_rows> rows{};
  int count = 0;
  int pairs = 0;  // that had to be covered
};

/// Returns the rows of a covering array. Factor f has `levels[f]` levels. `allowed(f, a, g, b)`
/// with f < g is true if level a of f and level b of g may be in one row. Greedy: each row begins
/// with a missing pair and takes, factor by factor, the level that covers most. Ties rotate, so
/// that rows differ.
template <int Factors, class Allowed>
constexpr CoveringArray<Factors> cover_pairs(const std::array<int, Factors>& levels,
                                             Allowed allowed) {
  constexpr int max_levels = 160;  // of all factors
  std::array<int, Factors> first{};
  int all = 0;
  for (int f = 0; f < Factors; ++f) {
    first[f] = all;
    all += levels[f];
  }
  std::array<std::array<bool, max_levels>, max_levels> missing{};
  CoveringArray<Factors> array;
  const auto may = [&](int f, int a, int g, int b) {
    return f < g ? allowed(f, a, g, b) : allowed(g, b, f, a);
  };
  for (int f = 0; f < Factors; ++f) {
    for (int g = f + 1; g < Factors; ++g) {
      for (int a = 0; a < levels[f]; ++a) {
        for (int b = 0; b < levels[g]; ++b) {
          if (!may(f, a, g, b)) continue;
          missing[first[f] + a][first[g] + b] = missing[first[g] + b][first[f] + a] = true;
          ++array.pairs;
        }
      }
    }
  }
  // First pairs of rows in order: no pair before `f`, `a` is missing.
  for (int f = 0; f < Factors; ++f) {
    for (int a = 0; a < levels[f]; ++a) {
      for (int g = f + 1; g < Factors; ++g) {
        for (int b = 0; b < levels[g]; ++b) {
          if (!missing[first[f] + a][first[g] + b]) continue;
          std::array<int, Factors> row{};
          for (int& level : row) level = -1;
          row[f] = a;
          row[g] = b;
          for (int h = 0; h < Factors; ++h) {
            if (row[h] >= 0) continue;
            int best = -1;
            for (int k = 0; k < levels[h]; ++k) {
              const int level = (k + array.count) % levels[h];
              int gain = 0;
              for (int o = 0; o < Factors && gain >= 0; ++o) {
                if (row[o] < 0) continue;
                if (!may(h, level, o, row[o])) {
                  gain = -1;
                } else if (missing[first[h] + level][first[o] + row[o]]) {
                  ++gain;
                }
              }
              if (gain > best) {
                best = gain;
                row[h] = level;
              }
            }
          }
          for (int o = 0; o < Factors; ++o) {
            for (int p = 0; p < Factors; ++p) {
              missing[first[o] + row[o]][first[p] + row[p]] = false;
            }
          }
          array.rows.at(array.count++) = row;
        }
      }
    }
  }
  return array;
}

/// Is each allowed pair in some row, and no other?
template <int Factors, class Allowed>
constexpr bool covers(const CoveringArray<Factors>& array, const std::array<int, Factors>& levels,
                      Allowed allowed) {
  for (int f = 0; f < Factors; ++f) {
    for (int g = f + 1; g < Factors; ++g) {
      for (int a = 0; a < levels[f]; ++a) {
        for (int b = 0; b < levels[g]; ++b) {
          bool found = false;
          for (int r = 0; r < array.count && !found; ++r) {
            found = array.rows[r][f] == a && array.rows[r][g] == b;
          }
          if (found != allowed(f, a, g, b)) return false;
        }
      }
    }
  }
  return true;
}

}  // namespace ccl::test
