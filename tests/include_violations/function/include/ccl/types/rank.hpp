#pragma once
constexpr int root_of_rank(int rank, int roots) {
  return rank % roots;
}
